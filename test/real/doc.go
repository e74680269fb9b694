// Package real runs notifier with other projects' programs, set up as users set them up: with TLS, HTTP/2,
// passwords and proxies. A stand-in of our own only confirms our beliefs about the other side.
//
// The programs come from Debian's packages. A test is skipped if its program is missing, unless
// NOTIFIER_TEST_REAL is "require".
package real
