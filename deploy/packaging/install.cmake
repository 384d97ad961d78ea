# What `cmake --install` puts where, and the Debian packages that CPack makes of it:
# kvcompress (component server) and libkvcompress-dev (component dev).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

install(TARGETS kv-compress kv-compressd
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT server)
include(${CMAKE_CURRENT_LIST_DIR}/command_line.cmake)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/kv-compressd.service
        DESTINATION lib/systemd/system COMPONENT server)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/sysusers.conf
        DESTINATION lib/sysusers.d RENAME kvcompress.conf COMPONENT server)
install(FILES server/OPERATIONS.md CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/kvcompress
        COMPONENT server)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/kvcompress
        RENAME copyright COMPONENT server)
install(FILES LICENSE
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/libkvcompress-dev
        RENAME copyright COMPONENT dev)

set_target_properties(kvcompress_core PROPERTIES EXPORT_NAME core)
set_target_properties(kvcompress_proto PROPERTIES EXPORT_NAME proto)
set_target_properties(kvcompress_wire PROPERTIES EXPORT_NAME wire)
set_target_properties(kvcompress_files PROPERTIES EXPORT_NAME files)
set_target_properties(kvcompress_client PROPERTIES EXPORT_NAME client)
install(TARGETS kvcompress_core kvcompress_proto kvcompress_wire
                kvcompress_files kvcompress_client
        EXPORT kvcompress
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY core/include/ client/cpp/include/
                  ${PROJECT_BINARY_DIR}/proto/kvcompress
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT dev FILES_MATCHING PATTERN "*.h")
install(DIRECTORY proto/kvcompress
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/kvcompress/proto
        COMPONENT dev FILES_MATCHING PATTERN "*.proto")

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/kvcompress)
# Before 1.0 a minor release may change the C++ interface.
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/kvcompressConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/kvcompressConfig.cmake
              ${PROJECT_BINARY_DIR}/kvcompressConfigVersion.cmake
        DESTINATION ${config_folder} COMPONENT dev)
install(EXPORT kvcompress NAMESPACE kvcompress:: FILE kvcompressTargets.cmake
        DESTINATION ${config_folder} COMPONENT dev)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The KV Compress Authors")
set(CPACK_PACKAGE_CONTACT "The KV Compress Authors <kvcompress@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL server dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_SERVER_PACKAGE_NAME kvcompress)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_LIST_DIR}/postinst)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libkvcompress-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libabsl-dev, libgrpc++-dev, libhwy-dev, liblz4-dev, libprotobuf-dev, libssl-dev, libxxhash-dev, libzstd-dev, pkg-config, protobuf-compiler-grpc")
set(CPACK_COMPONENT_SERVER_DESCRIPTION
    "server and command line that compress KV caches
 Compresses the KV caches of LLM inference over gRPC, with measured quality.")
set(CPACK_COMPONENT_DEV_DESCRIPTION
    "C++ library of KV Compress
 The client of the service and the library that compresses, for CMake.")
include(CPack)
