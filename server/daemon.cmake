# The process kv-compressd around the service.
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(yaml-cpp REQUIRED)

add_library(kvcompress_daemon STATIC
    acceptor.cc
    address.cc
    call_ticker.cc
    certificates.cc
    config.cc
    config_file.cc
    connect.cc
    descriptors.cc
    dial.cc
    environment.cc
    flag_values.cc
    flags.cc
    grpc_server.cc
    health.cc
    http_get.cc
    lifecycle.cc
    listening_socket.cc
    probe.cc
    profile_directory.cc
    reachability.cc
    read_file.cc
    reflection.cc
    signals.cc
    stream_counts.cc
    telemetry/call_log.cc
    telemetry/charts.cc
    telemetry/connection_metrics.cc
    telemetry/grpc_log.cc
    telemetry/html.cc
    telemetry/http.cc
    telemetry/http_connection.cc
    telemetry/http_listener.cc
    telemetry/http_metrics.cc
    telemetry/http_renderer.cc
    telemetry/http_request.cc
    telemetry/http_response.cc
    telemetry/http_table.cc
    telemetry/index_page.cc
    telemetry/load_history.cc
    telemetry/logging.cc
    telemetry/metrics.cc
    telemetry/process_metrics.cc
    telemetry/profile_metrics.cc
    telemetry/quality_metrics.cc
    telemetry/rpc_metrics.cc
    telemetry/status_page.cc
    thread_reserve.cc
    tls.cc
    unread.cc)
target_include_directories(kvcompress_daemon PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(kvcompress_daemon
    PUBLIC kvcompress_service kvcompress_wire spdlog::spdlog
           prometheus-cpp::core
           absl::synchronization
           absl::time
    PRIVATE CLI11::CLI11 gRPC::grpc nlohmann_json::nlohmann_json
            OpenSSL::Crypto OpenSSL::SSL yaml-cpp)

add_executable(kv-compressd main.cc)
target_link_libraries(kv-compressd PRIVATE kvcompress_daemon)
