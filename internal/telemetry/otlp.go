package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"notifier/internal/cause"
	"notifier/internal/http1"
	"notifier/internal/redact"
)

// otlpClient sends spans to a collector, by OTLP over HTTP with protobuf. OpenTelemetry's own client for that
// brings gRPC and its gateway into the program, and its errors quote the collector's response.
//
// Errors show the scheme and the host of the collector's address, and no header nor any of its response.
type otlpClient struct {
	endpoint string // with its path; it may hold a user and a password
	headers  http.Header
	timeout  time.Duration // of an upload with all its attempts
	gzip     bool
	ownRoots bool // it trusts the authorities of a variable, and not the system's
	http     *http.Client
}

// newOTLPClient makes a client from the OTEL_EXPORTER_OTLP_* variables. variable returns the name of the
// variable for the traces, or else the one for all signals, and its value. All errors are joined; each names
// the variable and the expected form, but not the value, which can be a secret.
func newOTLPClient(variable func(suffix string) (name, value string)) (*otlpClient, error) {
	c := &otlpClient{timeout: 10 * time.Second, headers: http.Header{}}
	var wrong []error
	if name, value := variable("PROTOCOL"); value != "" && value != "http/protobuf" {
		wrong = append(
			wrong,
			fmt.Errorf("%s: is a protocol that notifier does not speak, expected http/protobuf", name),
		)
	}
	wrong = append(wrong, c.setEndpoint(variable("ENDPOINT")))
	wrong = append(wrong, c.setHeaders(variable("HEADERS")))
	if name, value := variable("TIMEOUT"); value != "" {
		ms, err := strconv.ParseUint(value, 10, 31)
		if err != nil || ms == 0 {
			wrong = append(wrong, fmt.Errorf("%s: is not a time, expected milliseconds such as 10000", name))
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	switch name, value := variable("COMPRESSION"); value {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		wrong = append(wrong, fmt.Errorf("%s: is no compression that notifier knows, expected gzip or none", name))
	}
	roots, certificates, err := otlpTLS(variable)
	if err := errors.Join(append(wrong, err)...); err != nil {
		return nil, err
	}
	c.ownRoots = roots != nil
	c.http = &http.Client{
		Transport: http1.NewTransport(roots, certificates...),
		// A redirect would take the headers, which authenticate, to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func (c *otlpClient) setEndpoint(name, value string) error {
	if value == "" {
		value = "http://localhost:4318"
	}
	parsed, err := url.Parse(value)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return fmt.Errorf("%s: is not a URL, expected http://host:port or https://host:port", name)
	}
	if !strings.HasSuffix(name, "_TRACES_ENDPOINT") {
		parsed = parsed.JoinPath("v1/traces")
	}
	c.endpoint = parsed.String()
	return nil
}

// setHeaders reads "name=value,name=value", with values that may be percent-encoded.
func (c *otlpClient) setHeaders(name, list string) error {
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		key = strings.TrimSpace(key)
		if !found || err != nil || key == "" || strings.ContainsAny(key+value, "\r\n") ||
			strings.ContainsAny(key, ": ") {
			return fmt.Errorf("%s: is not a list of headers, expected name=value, separated by commas", name)
		}
		c.headers.Set(key, value)
	}
	return nil
}

// otlpTLS reads the files that the variables name. Nil roots are the system's.
func otlpTLS(
	variable func(suffix string) (name, value string),
) (roots *x509.CertPool, certificates []tls.Certificate, err error) {
	if name, file := variable("CERTIFICATE"); file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(content) {
			return nil, nil, fmt.Errorf("%s: %s has no certificate in PEM, expected one", name, file)
		}
	}
	name, certificate := variable("CLIENT_CERTIFICATE")
	if _, key := variable("CLIENT_KEY"); certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w; expected a certificate and its key in PEM", name, err)
		}
		certificates = []tls.Certificate{pair}
	}
	return roots, certificates, nil
}

// Start implements otlptrace.Client.
func (c *otlpClient) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *otlpClient) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It repeats attempts that may succeed later, within the timeout.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// The bytes equal an ExportTraceServiceRequest; the package of that type would bring gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return otlpError("the spans cannot be encoded")
	}
	if c.gzip {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		_, _ = writer.Write(body) // into memory
		_ = writer.Close()
		body = packed.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var reason otlpError
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		err := c.upload(ctx, body)
		errors.As(err, &reason)
		return struct{}{}, err
	}, backoff.WithMaxElapsedTime(c.timeout))
	if err != nil { // the reason of the last attempt explains more than an error of ctx
		return reason
	}
	return nil
}

// upload makes one attempt. Its error is permanent where another attempt would end in the same way.
func (c *otlpClient) upload(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(otlpError("the request cannot be made"))
	}
	for name, values := range c.headers {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := c.http.Do(request)
	if err != nil {
		text := cause.Text(err)
		if !c.ownRoots {
			_, text = cause.OfSystemRoots(err)
		}
		return otlpError(redact.Host(c.endpoint) + ": " + text)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // so that the connection can be used again
	refused := otlpError(fmt.Sprintf("%s: HTTP status %d", redact.Host(c.endpoint), response.StatusCode))
	switch response.StatusCode {
	case http.StatusTooManyRequests,
		http.StatusBadGateway,
		http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return refused
	}
	if response.StatusCode/100 != 2 {
		return backoff.Permanent(refused)
	}
	return nil
}

// otlpError is an error without secrets.
type otlpError string

func (e otlpError) Error() string { return string(e) }
