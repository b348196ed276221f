# Sources with WEIR_KERNEL in them: nvcc, if installed, builds them as CUDA C++ for GPUs and the CPU, otherwise the C
# compiler builds them for the CPU. Called in the folder that adds the sources to a target.
function(weir_kernels target)
    if(WEIR_HAVE_NVCC)
        set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
    endif()
    target_sources(${target} PRIVATE ${ARGN})
    if(WEIR_UNCHECKED_WAITS)
        target_compile_definitions(${target} PRIVATE WEIR_UNCHECKED_WAITS)
    endif()
endfunction()

# weir_add_program(name [SOURCES file...] [KERNELS file...]): a program that uses libweir as a user's program does.
function(weir_add_program name)
    cmake_parse_arguments(arg "" "" "SOURCES;KERNELS" ${ARGN})
    add_executable(${name} ${arg_SOURCES})
    if(arg_KERNELS)
        weir_kernels(${name} ${arg_KERNELS})
    endif()
    target_link_libraries(${name} PRIVATE weir weir_flags Threads::Threads)
endfunction()
