package ratelimit

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// rememberAll adds n admissions to a journal, a microsecond apart.
func rememberAll(j *journal, n int, from int64) {
	for i := range n {
		at := from + int64(i)
		j.recordDecided(j.currentEpoch(), at, []remembered{{
			member: fmt.Sprintf("category-%d:event-%032d", i%100, at), delivery: fmt.Sprintf("%d", at),
			entry: "category", at: at, cost: 1,
		}}, nil)
	}
}

// A journal keeps only the latest admissions, and only for as long as they matter.
func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	j := &journal{}
	j.start(time.Hour)
	now := time.Now().UnixMicro()
	rememberAll(j, maxRemembered+10*blockSize, now)
	size, evicted := j.size()
	if size != maxRemembered || evicted != 10*blockSize {
		t.Errorf("%d are remembered and %d given up, expected %d and %d", size, evicted, maxRemembered, 10*blockSize)
	}
	all := j.all()
	if first, last := now+10*blockSize, now+maxRemembered+10*blockSize-1; len(all) != maxRemembered ||
		all[0].at != first || all[len(all)-1].at != last {
		t.Errorf("%d are restored, from %d to %d, expected %d, from %d to %d", len(all), all[0].at-now, all[len(all)-1].at-now,
			maxRemembered, first-now, last-now)
	}
	rememberAll(j, 1, now+2*time.Hour.Microseconds())
	if len(j.number) != 1 || len(j.blocks) > 2 {
		t.Errorf("%d are remembered in %d blocks, expected 1 in at most 2 after their time", len(j.number), len(j.blocks))
	}
}

// A reply from before a healing is rejected.
func TestJournalRefusesAnOlderEpoch(t *testing.T) {
	t.Parallel()
	j := &journal{}
	entries := []remembered{{member: "category:event", at: 1}}
	if !j.recordDecided(j.currentEpoch(), 1, entries, nil) || len(j.all()) > 0 {
		t.Error("a journal that is not kept refuses or records")
	}
	j.start(time.Hour)
	asked := j.currentEpoch()
	j.nextEpoch()
	if j.recordDecided(asked, 1, entries, nil) || len(j.all()) > 0 {
		t.Error("it is not refused, or recorded")
	}
}

// The sizing in docs/operating.md counts on about 30 MB for 100,000 remembered admissions.
func TestWhatARememberedAdmissionTakes(t *testing.T) {
	j := &journal{}
	j.start(time.Hour)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	rememberAll(j, maxRemembered, time.Now().UnixMicro())
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / maxRemembered
	t.Logf("%d bytes for each admission", each)
	if each > 400 {
		t.Errorf("%d bytes for each admission, expected at most 400", each)
	}
	runtime.KeepAlive(j)
}
