# cmake --install: the command, the client library with its headers, and what finds them: pkg-config (forebay.pc)
# and find_package(forebay). The wheel installs its own files (python/CMakeLists.txt).
if(FOREBAY_PYTHON_WHEEL)
  return()
endif()

if(TARGET forebay-cli)
  file(RELATIVE_PATH FOREBAY_LIB_FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(forebay-cli PROPERTIES INSTALL_RPATH "$ORIGIN/${FOREBAY_LIB_FROM_BIN}")
  install(TARGETS forebay-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/forebay.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

if(TARGET forebay)
  install(TARGETS forebay LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/forebay DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h")

  # Relative, so that an installation can be moved, and tested where it isn't meant to stay.
  file(RELATIVE_PATH FOREBAY_PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/forebay.pc.in ${PROJECT_BINARY_DIR}/forebay.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/forebay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  include(CMakePackageConfigHelpers)
  set(FOREBAY_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/forebay)
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/forebayConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/forebayConfig.cmake
                                INSTALL_DESTINATION ${FOREBAY_CMAKE_DIR}
                                PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/forebayConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/forebayConfig.cmake ${PROJECT_BINARY_DIR}/forebayConfigVersion.cmake
          DESTINATION ${FOREBAY_CMAKE_DIR})
endif()
