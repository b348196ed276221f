# weir_module(LIST SOURCE): adds to LIST a C file that defines weiri_module_NAME: the bytes of the GPU module that nvcc
# builds from NAME.c, a family of weir's kernels (src/device/kernels.h). Without a GPU build the bytes are a 0 and the
# reason as text.
function(weir_module list source)
    get_filename_component(name ${source} NAME_WE)
    set(bytes ${CMAKE_CURRENT_BINARY_DIR}/module_${name}.c)
    set(${list} ${${list}} ${bytes} PARENT_SCOPE)
    set(missing "")
    if(NOT WEIR_HAVE_NVCC)
        set(missing "libweir was built without nvcc")
    elseif(name MATCHES "^collective" AND NOT WEIR_GPU_COLLECTIVES)
        set(missing "libweir was built without kernels of collectives for GPUs (WEIR_GPU_COLLECTIVES)")
    endif()
    if(missing)
        file(CONFIGURE OUTPUT ${bytes}
            CONTENT "const unsigned char weiri_module_${name}[] = \"\\0${missing}\";\n")
        return()
    endif()
    set(flags -O3 -std=c++${CMAKE_CUDA_STANDARD} -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
        --diag-suppress=177 -DWEIR_KERNEL_MODULE)
    if(WEIR_LATE_NAMES AND NOT name STREQUAL collective_exchange) # small exchanges take longer with late names
        list(APPEND flags -DWEIR_LATE_NAMES)
    endif()
    foreach(arch IN LISTS CMAKE_CUDA_ARCHITECTURES)
        string(REGEX MATCH "[0-9]+" number ${arch})
        if(arch MATCHES "real")
            list(APPEND flags -gencode=arch=compute_${number},code=sm_${number})
        elseif(arch MATCHES "virtual")
            list(APPEND flags -gencode=arch=compute_${number},code=compute_${number})
        else()
            list(APPEND flags -gencode=arch=compute_${number},code=[compute_${number},sm_${number}])
        endif()
    endforeach()
    if(CMAKE_CUDA_HOST_COMPILER)
        list(APPEND flags -ccbin=${CMAKE_CUDA_HOST_COMPILER})
    endif()
    if(WEIR_WERROR)
        list(APPEND flags --Werror=all-warnings)
    endif()
    separate_arguments(users UNIX_COMMAND "${CMAKE_CUDA_FLAGS}")
    list(APPEND flags ${users})
    set(binary ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    set(script ${PROJECT_SOURCE_DIR}/cmake/weir_module_bytes.cmake)
    add_custom_command(OUTPUT ${bytes}
        COMMAND ${CMAKE_CUDA_COMPILER} -x cu -fatbin ${flags} -MD -MF ${binary}.d -MT ${bytes} -o ${binary} ${source}
        COMMAND ${CMAKE_COMMAND} -DNAME=${name} -DBINARY=${binary} -DOUTPUT=${bytes} -P ${script}
        DEPENDS ${source} ${script} DEPFILE ${binary}.d COMMENT "Building kernels of ours: ${name}" VERBATIM)
endfunction()
