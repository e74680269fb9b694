# Images of notifier.
#
#   docker build -t notifier .                       target "production", the default: the worker and nothing else
#   docker build -t notifier-demo --target demo .    the same, and notifier-dev: the demo, the fake Slack and `simulate`
#
# Only what every builder understands is used here, so the classic one can build it as well as BuildKit.
# GOPROXY and GOSUMDB are for networks with a Go module mirror of their own; unset or empty means Go's defaults.

FROM golang:1.26-trixie AS modules
WORKDIR /src
ARG GOPROXY
ARG GOSUMDB
COPY go.mod go.sum ./
RUN go mod download

FROM modules AS build
ARG VERSION
ARG COMMIT
COPY . .
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X notifier/internal/buildinfo.version=$VERSION -X notifier/internal/buildinfo.commit=$COMMIT" \
    -o /out/notifier ./cmd/notifier && \
    go version -m /out/notifier > /out/sbom.txt

FROM build AS build-demo
# Again, because the classic builder forgets arguments at the end of a stage.
ARG VERSION
ARG COMMIT
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X notifier/internal/buildinfo.version=$VERSION -X notifier/internal/buildinfo.commit=$COMMIT" \
    -o /out/notifier-dev ./cmd/notifier-dev && \
    go version -m /out/notifier /out/notifier-dev > /out/sbom.txt

FROM gcr.io/distroless/static-debian13:nonroot AS worker
# With the program the list of what is in it: Go's version, and each module with its version and checksum.
COPY --from=build /out/notifier /out/sbom.txt /
# A number and not a name: Kubernetes can tell that it is not root (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["/notifier"]

# No HEALTHCHECK: `notifier-dev dev -slack-only` has no worker that one could ask. docker-compose.yml has one for the workers.
FROM worker AS demo
COPY --from=build-demo /out/notifier-dev /out/sbom.txt /

# The last stage is what a build without --target gives.
FROM worker AS production
# The label alone needs a default: the program has its version from internal/buildinfo/VERSION. A test compares the two.
ARG VERSION=v0.4.0-dev
ARG COMMIT
LABEL org.opencontainers.image.title="notifier" \
      org.opencontainers.image.description="Sends events from NATS to Slack, within limits that hold over all replicas" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 CMD ["/notifier", "healthcheck"]
