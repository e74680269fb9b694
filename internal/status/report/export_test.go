package report

import "time"

// Hurry makes a Reporter report a hundred times a second.
func (r *Reporter) Hurry() { r.every = 10 * time.Millisecond }

// Note records the result of a pipeline that ended at the given time.
func (r *Reporter) Note(err error, at time.Time) { r.note(err, at) }

// Bounds for tests.
const (
	MaxEntries       = maxEntries
	MaxFields        = maxFields
	MaxSnapshotBytes = maxSnapshotBytes
	MaxReplicas      = maxReplicas
)
