# syntax=docker/dockerfile:1
# The image is the binary, the certificates of public authorities and a user without rights: no shell,
# no package manager. docker build --build-arg VERSION=$(git describe --tags --always) -t walrelay .

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=unknown TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go-build \
    GOCACHE=/go-build CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /walrelay ./cmd/walrelay

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /walrelay /walrelay
# Metrics and health must be reachable from outside of the container.
ENV HTTP_ADDR=:8080
EXPOSE 8080
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["/walrelay", "healthcheck"]
ENTRYPOINT ["/walrelay"]
CMD ["run"]
