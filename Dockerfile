# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

# Build with `--format docker` where the tool would leave out the health check.
FROM debian:12-slim AS build
WORKDIR /src
COPY deploy/build deploy/common.sh deploy/
RUN deploy/build --deps-only
COPY . .
RUN deploy/build --preset image --binaries-only && strip bin/kv-compress bin/kv-compressd

FROM debian:12-slim
# The libraries that the two binaries name, and nothing else.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends \
      libabsl20220623 \
      libfmt9 \
      libgrpc++1.51 \
      libgrpc29 \
      libhwy1 \
      liblz4-1 \
      libprometheus-cpp-core1.0 \
      libprotobuf32 \
      libspdlog1.10 \
      libssl3 \
      libxxhash0 \
      libyaml-cpp0.7 \
      libzstd1 && \
    rm -rf /var/cache/apt /var/lib/apt/lists/*
COPY --from=build /src/bin/ /usr/local/bin/
COPY LICENSE /usr/share/doc/kvcompress/

ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
# The bill of materials: what is installed here, and what was compiled in there.
RUN --mount=type=bind,from=build,source=/,target=/build \
    /build/src/deploy/sbom "${VERSION}" "${REVISION}" /build/var/lib/dpkg \
      libcli11-dev nlohmann-json3-dev \
      >/usr/share/doc/kvcompress/sbom.spdx.json

LABEL org.opencontainers.image.title="KV Compress" \
      org.opencontainers.image.description="Compresses KV caches of LLM inference with measured quality, over gRPC" \
      org.opencontainers.image.vendor="The KV Compress Authors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:12-slim" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.revision="${REVISION}"

# Within the container every address, in plain text; which of them can be reached
# from outside is for whoever runs it to say. For TLS mount the files and set
# KVCOMPRESS_TLS_CERT and KVCOMPRESS_TLS_KEY, which then go for every address.
ENV KVCOMPRESS_LISTEN=0.0.0.0:50051 \
    KVCOMPRESS_INSECURE=true \
    KVCOMPRESS_METRICS_LISTEN=0.0.0.0:9464
EXPOSE 50051 9464
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["/usr/local/bin/kv-compressd", "--probe"]
ENTRYPOINT ["/usr/local/bin/kv-compressd"]
