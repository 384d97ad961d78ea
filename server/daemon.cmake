# The process kv-compressd around the service.
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(civetweb REQUIRED)

add_library(kvcompress_daemon STATIC
    address.cc
    certificates.cc
    config.cc
    flag_values.cc
    health.cc
    lifecycle.cc
    memory_limit.cc
    probe.cc
    signals.cc
    telemetry/call_log.cc
    telemetry/http.cc
    telemetry/logging.cc
    telemetry/metrics.cc
    telemetry/process_metrics.cc
    telemetry/quality_metrics.cc
    telemetry/rpc_metrics.cc
    telemetry/status_page.cc
    tls.cc)
target_include_directories(kvcompress_daemon PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(kvcompress_daemon
    PUBLIC kvcompress_service kvcompress_proto spdlog::spdlog
           prometheus-cpp::core absl::flat_hash_set absl::function_ref
           absl::synchronization
           absl::time
    PRIVATE CLI11::CLI11 civetweb::civetweb-cpp gRPC::grpc
            gRPC::grpc++_reflection nlohmann_json::nlohmann_json
            OpenSSL::Crypto)

add_executable(kv-compressd main.cc)
target_link_libraries(kv-compressd PRIVATE kvcompress_daemon)
