# Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0

# The image of the Debian package that `deploy/release` leaves in build/dist. Build with
# `--format docker` where the tool would leave out the health check.
FROM debian:12-slim
# The package, the libraries that it depends on, and nothing else.
RUN --mount=type=bind,source=build/dist,target=/packages \
    apt-get update && \
    apt-get install --yes --no-install-recommends /packages/kvcompress_*.deb && \
    rm -rf /var/cache/apt /var/lib/apt/lists/*

ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
# The bill of materials: what is installed, and what was compiled in.
RUN --mount=type=bind,source=deploy/sbom,target=/sbom \
    /sbom "${VERSION}" "${REVISION}" >/usr/share/doc/kvcompress/sbom.spdx.json

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
  CMD ["/usr/bin/kv-compressd", "--probe"]
ENTRYPOINT ["/usr/bin/kv-compressd"]
