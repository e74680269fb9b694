package http1

import (
	"errors"
	"io/fs"
	"net"
	"strings"
)

// Cause returns the text of an error's cause, without the errors that wrap it: those quote the URL, which can
// hold a secret. It quotes nothing that a server or a proxy has sent, which could be the request itself. If
// the connection to the proxy is the cause, the text begins with "proxy: ".
func Cause(err error) string {
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Op == "proxyconnect" {
		return "proxy: " + Cause(failed.Err)
	}
	for {
		var inner error
		switch outer := err.(type) {
		case *net.DNSError, *fs.PathError: // the errors inside name neither the host nor the file
		case *net.OpError:
			if !strings.HasSuffix(outer.Op, " error") { // "remote error": the server has sent an alert of TLS
				inner = outer.Err
			}
		case interface{ Unwrap() error }:
			inner = outer.Unwrap()
		case interface{ Unwrap() []error }: // a format such as "%w: %w" ends with the cause
			if all := outer.Unwrap(); len(all) > 0 {
				inner = all[len(all)-1]
			}
		}
		if inner == nil {
			return withoutQuotation(err.Error())
		}
		err = inner
	}
}

// withoutQuotation cuts a text before its first quotation: net/http quotes the beginning of a malformed
// response. A frame of HTTP/2 is recognized.
func withoutQuotation(text string) string {
	before, quotation, found := strings.Cut(text, `"`)
	if !found {
		return text
	}
	if at := strings.LastIndex(before, " ("); at >= 0 { // a remark that is incomplete without the quotation
		before = before[:at]
	}
	before = strings.TrimRight(before, " :[")
	if strings.HasPrefix(quotation, `\x00\x00`) {
		before += ": a frame of HTTP/2"
	}
	return before
}
