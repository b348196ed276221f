# Finds the MPI that libweir-mpi serves. WEIR_MPI is AUTO (if it is here), ON (it must be here) or OFF. Sets
# WEIR_HAVE_MPI; PkgConfig::MPI is its C library with the headers.
set(WEIR_MPI AUTO CACHE STRING "AUTO: if the MPI's mpi.h is here; ON: it must be here; OFF: do without")
set_property(CACHE WEIR_MPI PROPERTY STRINGS AUTO ON OFF)
set(WEIR_MPI_PACKAGE ompi-c CACHE STRING "The MPI's name for pkg-config: ompi-c is Open MPI, mpich is MPICH, without tests")
if(NOT WEIR_MPI MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "WEIR_MPI is '${WEIR_MPI}'; it must be AUTO, ON or OFF")
endif()
set(WEIR_HAVE_MPI OFF)
if(NOT WEIR_MPI STREQUAL "OFF")
    pkg_check_modules(MPI QUIET IMPORTED_TARGET ${WEIR_MPI_PACKAGE})
    if(MPI_FOUND)
        set(WEIR_HAVE_MPI ON)
    elseif(WEIR_MPI STREQUAL "ON")
        message(FATAL_ERROR "WEIR_MPI is ON, but pkg-config has no ${WEIR_MPI_PACKAGE}; Debian's packages are "
            "libopenmpi-dev and libmpich-dev")
    endif()
endif()
message(STATUS "MPI (${WEIR_MPI_PACKAGE}): ${WEIR_HAVE_MPI}")
