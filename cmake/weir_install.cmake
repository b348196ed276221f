# The installed tree: headers, library, CMake package, pkg-config file, tools.
include(CMakePackageConfigHelpers)

install(TARGETS weir EXPORT weirTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
foreach(tool weir-info weir-perf)
    if(TARGET ${tool})
        set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
        install(TARGETS ${tool})
    endif()
endforeach()

if(TARGET weir-mpi)
    install(TARGETS weir-mpi)
endif()
if(TARGET weir-perf)
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/perf/plot.py DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME weir-perf-plot)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
install(EXPORT weirTargets NAMESPACE weir:: DESTINATION ${package_dir})
configure_package_config_file(cmake/weirConfig.cmake.in ${PROJECT_BINARY_DIR}/weirConfig.cmake
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change anything.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weirConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# Relative to the file itself, so the path stays right after `cmake --install --prefix` or a move of the tree.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(WEIR_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
    set(WEIR_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
    set(WEIR_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
    string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
    set(WEIR_PC_PREFIX "\${pcfiledir}/${up}")
    set(WEIR_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    set(WEIR_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/weir.pc.in ${PROJECT_BINARY_DIR}/weir.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weirConfig.cmake ${PROJECT_BINARY_DIR}/weirConfigVersion.cmake
    DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
