// Package survival measures the cost of a failover or an empty restart of Redis: the admissions above the
// limit, and the time without decisions. It has tests only. The limiters of four workers request more events
// from a real Redis than the limits allow. Then a fault hits Redis, and the workers continue until the limits
// are used up. Admissions are counted from the workers' own records, not from the contents of Redis.
//
// Ordinary test runs play two scenarios. make survive plays each one NOTIFIER_SURVIVE_ROUNDS times and prints
// the table in docs/design.md. With NOTIFIER_SURVIVE_HEALING=off workers restore nothing, so the table shows
// the losses that healing prevents.
package survival
