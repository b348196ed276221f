# What of libfabric is here. WEIR_HAVE_OFI: its headers are, so that the transport ofi can be built; the library itself
# is loaded at run time.
set(WEIR_HAVE_OFI OFF)

if(NOT WEIR_OFI MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "WEIR_OFI is '${WEIR_OFI}'; it must be AUTO, ON or OFF")
endif()

if(NOT WEIR_OFI STREQUAL "OFF")
    find_path(WEIR_OFI_INCLUDE rdma/fabric.h DOC "Folder that has rdma/fabric.h")
    mark_as_advanced(WEIR_OFI_INCLUDE)
    if(WEIR_OFI_INCLUDE)
        set(WEIR_HAVE_OFI ON)
    elseif(WEIR_OFI STREQUAL "ON")
        message(FATAL_ERROR "WEIR_OFI is ON, but there is no rdma/fabric.h; it is in libfabric-dev")
    endif()
endif()

message(STATUS "libfabric: ${WEIR_HAVE_OFI}")
