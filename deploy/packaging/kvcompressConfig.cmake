# find_package(kvcompress): kvcompress::client, the client of the service, and
# kvcompress::core, the library that compresses.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl)
find_dependency(Protobuf)
find_dependency(gRPC)
find_dependency(OpenSSL)
find_dependency(PkgConfig)
foreach(library hwy lz4 xxhash zstd)
  pkg_check_modules(${library} REQUIRED IMPORTED_TARGET lib${library})
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/kvcompressTargets.cmake)
