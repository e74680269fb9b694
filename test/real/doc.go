// Package real runs notifier with other projects' programs, set up as users set them up: with TLS, HTTP/2,
// passwords, permissions and proxies. A stand-in of our own only confirms our beliefs about the other side.
//
// Some programs come from Debian's packages, others from Go modules. A test looks for its program in PATH.
// Where it is missing, the test is skipped, unless NOTIFIER_TEST_REAL is "require": then it builds a Go
// program, with versions from go.mod and programs/go.mod, and fails without one of the others.
//
// "make real" requires all of them, and writes the table of versions and results in docs/compatibility.md.
package real
