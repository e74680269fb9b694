// Package real runs notifier with programs that nobody here wrote, in the form in which users have them. A
// stand-in of our own shows what we believe of the other side; these show what it does.
//
// The programs come from Debian's packages. A test is skipped if its program is missing, unless
// NOTIFIER_TEST_REAL is "require".
package real
