// software_nic.h - lets transport ib run over tools/swnic, in this process and the processes that it starts; C++ only.
#ifndef WEIRT_SOFTWARE_NIC_H
#define WEIRT_SOFTWARE_NIC_H

#include <cstdlib>
#include <filesystem>

// Uses the software NIC if this host has no RDMA device and this build has the software NIC. Returns whether it did.
inline bool weirt_use_software_nic()
{
#if defined(WEIRT_SOFTWARE_NIC)
    std::error_code error;
    if (std::filesystem::is_empty("/sys/class/infiniband", error) || error) {
        // On another machine than the build's, the file is among the libraries.
        const bool here = std::filesystem::exists(WEIRT_SOFTWARE_NIC, error);
        setenv("WEIR_IB_VERBS_LIBRARY", here ? WEIRT_SOFTWARE_NIC : "libswnic.so", 1);
        setenv("WEIR_IB_TIMEOUT", "16", 0);
        return true;
    }
#endif
    return false;
}

#endif
