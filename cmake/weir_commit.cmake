# Writes the commit of the folder SOURCE to HEADER unless it is up to date; runs when weir-perf is built.
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
find_program(git git)
if(git)
    execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
        OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
        set(commit ${found})
    endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define PERF_COMMIT \"@commit@\"\n" @ONLY)
