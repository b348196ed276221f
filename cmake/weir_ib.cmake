# What of RDMA verbs is here. WEIR_HAVE_IB: infiniband/verbs.h is, so that what uses verbs can be built; the library
# itself is loaded at run time.
set(WEIR_HAVE_IB OFF)

if(NOT WEIR_IB MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "WEIR_IB is '${WEIR_IB}'; it must be AUTO, ON or OFF")
endif()

if(NOT WEIR_IB STREQUAL "OFF")
    find_path(WEIR_IB_INCLUDE infiniband/verbs.h DOC "Folder that has infiniband/verbs.h")
    mark_as_advanced(WEIR_IB_INCLUDE)
    if(WEIR_IB_INCLUDE)
        set(WEIR_HAVE_IB ON)
    elseif(WEIR_IB STREQUAL "ON")
        message(FATAL_ERROR "WEIR_IB is ON, but there is no infiniband/verbs.h; it is in libibverbs-dev")
    endif()
endif()

message(STATUS "RDMA verbs: ${WEIR_HAVE_IB}")
