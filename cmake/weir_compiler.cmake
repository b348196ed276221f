# Language level, warnings and sanitizers of everything that is built here: the interface target weir_flags.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(weir_flags INTERFACE)
target_include_directories(weir_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(weir_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes>
    # Texts for users may be truncated at the ends of their buffers.
    $<$<AND:$<COMPILE_LANGUAGE:C>,$<C_COMPILER_ID:GNU>>:-Wno-format-truncation>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic>
    # 177: a function of a device header that this kernel does not use. -Wpedantic would reject nvcc's own output.
    $<$<COMPILE_LANGUAGE:CUDA>:--compiler-options=-Wall,-Wextra;--diag-suppress=177>)
if(WEIR_WERROR)
    target_compile_options(weir_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
        $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(WEIR_FUZZ)
    target_compile_options(weir_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(WEIR_SANITIZE)
    set(sanitize -fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND WEIR_SANITIZE MATCHES "undefined" AND NOT WEIR_FUZZ)
        # Suppressions work only for errors that need not end the program. UBSAN_OPTIONS below end it all the same.
        list(APPEND sanitize -fsanitize-recover=pointer-overflow)
    endif()
    # C++ is test code. Only the code that it calls is checked for undefined behaviour, which makes compiling a third
    # faster.
    string(REPLACE ",undefined" "" sanitize_bodies "${sanitize}")
    target_compile_options(weir_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${sanitize}>
        $<$<COMPILE_LANGUAGE:CXX>:${sanitize_bodies}>)
    target_link_options(weir_flags INTERFACE ${sanitize})
    # The environment of all tests: an error ends the program, and a too large allocation returns NULL. CTest and
    # tools/run_gtests.py read this file, because gtest_discover_tests cannot pass the list as a property of tests.
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/sanitizer_options.cmake CONTENT [[
set(ENV{ASAN_OPTIONS}
    detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1)
set(ENV{UBSAN_OPTIONS} print_stacktrace=1:halt_on_error=1:suppressions=@PROJECT_SOURCE_DIR@/cmake/ubsan.supp)
set(ENV{TSAN_OPTIONS} halt_on_error=1:second_deadlock_stack=1:history_size=4:allocator_may_return_null=1)
# libfabric clears 16 KiB for each expected message, which takes half a second for each queue under sanitizers.
set(ENV{FI_OFI_RXM_BUFFER_SIZE} 1024)
]])
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${PROJECT_BINARY_DIR}/sanitizer_options.cmake)
endif()
