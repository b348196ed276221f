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
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>
    # 177: a function of a device header that this kernel does not use. -Wpedantic would reject nvcc's own output.
    $<$<COMPILE_LANGUAGE:CUDA>:--compiler-options=-Wall,-Wextra;--diag-suppress=177>)
if(WEIR_WERROR)
    target_compile_options(weir_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
        $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(WEIR_SANITIZE)
    set(sanitize -fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_compile_options(weir_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>)
    target_link_options(weir_flags INTERFACE ${sanitize})
endif()
