package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/lua"
	"notifier/test/kit"
)

// vectorsFile holds histories for testing another implementation of the limiter. testdata/README.md describes
// the format.
const vectorsFile = "testdata/vectors.json"

var writeVectors = flag.Bool("write-vectors", false, "write "+vectorsFile+" from the model")

type vectorFile struct {
	Lease     int64                  `json:"lease"` // of all posts
	Events    map[string]vectorEvent `json:"events"`
	Histories []vector               `json:"histories"`
}

// vector is one history: a sequence of calls, each with its reply. Its start determines where fixed windows
// and buckets begin.
type vector struct {
	Title  string        `json:"title"`
	Start  int64         `json:"start"` // microseconds since 1970
	Dedupe string        `json:"dedupe"`
	Rules  []vectorRules `json:"rules"`
	Steps  []vectorStep  `json:"steps,omitempty"`
}

type vectorRules struct {
	Global         string            `json:"global"`
	Category       string            `json:"category"`
	Overrides      map[string]string `json:"overrides,omitempty"`
	Group          string            `json:"group,omitempty"`
	GroupOverrides map[string]string `json:"group_overrides,omitempty"`
	Reserve        map[string]int    `json:"reserve,omitempty"`
}

type vectorEvent struct {
	Category string `json:"category"`
	Source   string `json:"source,omitempty"`
	ID       string `json:"id"`
	Delivery string `json:"delivery"`
	Cost     int    `json:"cost"`
}

// vectorStep is one call with its arguments and its reply. The field that is set names the call.
type vectorStep struct {
	At    int64 `json:"at"`              // microseconds since the start, by the clock of the store
	Rules int   `json:"rules,omitempty"` // index of the caller's rules

	Admit    []string `json:"admit,omitempty"`
	DryRun   string   `json:"dry_run,omitempty"`
	Begin    string   `json:"begin,omitempty"`
	Answered string   `json:"answered,omitempty"`
	Sent     string   `json:"sent,omitempty"`
	Refund   string   `json:"refund,omitempty"`
	Forfeit  string   `json:"forfeit,omitempty"`
	Peek     []string `json:"peek,omitempty"`

	Cost   int    `json:"cost,omitempty"`
	Post   string `json:"post,omitempty"`
	Known  string `json:"known,omitempty"`
	Answer string `json:"answer,omitempty"`
	vectorReply
}

type vectorReply struct {
	Lag       int64            `json:"lag,omitempty"`
	Decisions []vectorDecision `json:"decisions,omitempty"`
	Permit    vectorPermit     `json:"permit,omitzero"`
	Released  *bool            `json:"released,omitempty"`
	Usages    []vectorUsage    `json:"usages,omitempty"`
}

type vectorPermit struct {
	Status   string `json:"status"`
	Posts    int    `json:"posts,omitempty"`
	LastPost string `json:"last_post,omitempty"`
	Wait     int64  `json:"wait,omitempty"`
}

type vectorDecision struct {
	Verdict  string `json:"verdict"`
	Tier     string `json:"tier,omitempty"`
	Used     int    `json:"used,omitempty"`
	Reserved int    `json:"reserved,omitempty"`
	Wait     int64  `json:"wait,omitempty"`
	AtLeast  bool   `json:"at_least,omitempty"`
	Never    bool   `json:"never,omitempty"`
	Posts    int    `json:"posts,omitempty"`
	LastPost string `json:"last_post,omitempty"`
}

type vectorUsage struct {
	Scope   string `json:"scope"`
	Tier    string `json:"tier"`
	Used    int    `json:"used"`
	FreeIn  int64  `json:"free_in,omitempty"`
	AtLeast bool   `json:"at_least,omitempty"`
}

// permitWords maps each status to its word in the file.
var permitWords = map[ratelimit.PermitStatus]string{
	ratelimit.Granted: "granted", ratelimit.Leased: "leased", ratelimit.LastPostUnknown: "last post unknown",
	ratelimit.NotInFlight: "not in flight",
}

const (
	answerPosted  = "posted"
	answerFailed  = "failed"  // certainly not in Slack
	answerUnclear = "unclear" // may be in Slack
)

// TestVectorsComeFromTheModel compares the file with the histories of the model. With -write-vectors it
// writes the file first.
func TestVectorsComeFromTheModel(t *testing.T) {
	want := encodeVectors(t, makeVectors(t))
	if *writeVectors {
		kit.Check(t, os.WriteFile(vectorsFile, want, 0o600))
	}
	got, err := os.ReadFile(vectorsFile)
	kit.Check(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("run make prove, and look at the differences (-model +file):\n%.4000s", diff)
	}
}

// TestVectorsReplay replays the file against the scripts and compares every reply.
func TestVectorsReplay(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		var vectors vectorFile
		file, err := os.ReadFile(vectorsFile)
		kit.Check(t, err)
		decoder := json.NewDecoder(bytes.NewReader(file))
		decoder.DisallowUnknownFields()
		kit.Check(t, decoder.Decode(&vectors))
		client := patient(t, s.Client)
		client.AddHook(setClock(t, s.Client))
		failed := 0
		for _, v := range vectors.Histories {
			if !vectors.replay(t, s, client, v) {
				failed++
			}
			if failed == 5 {
				t.Fatal("the rest is left out")
			}
		}
	})
}

// replay reports whether every reply matches. It stops at the first difference.
func (f vectorFile) replay(t *testing.T, s *store, client *redis.Client, v vector) bool {
	t.Helper()
	kit.Check(t, s.FlushAll(t.Context()).Err())
	var limiters []caller
	for _, rules := range v.Rules {
		limiter, err := ratelimit.New(client, "n", rules.parse(), mustParseDuration(t, v.Dedupe))
		kit.Check(t, err)
		limiters = append(limiters, caller{Limiter: limiter, t: t})
	}
	for i, step := range v.Steps {
		kit.Check(t, s.Set(t.Context(), clockKey, v.Start+step.At, 0).Err())
		got := step
		got.vectorReply = f.call(limiters[step.Rules], step)
		if want, got := mustMarshal(t, step), mustMarshal(t, got); !bytes.Equal(want, got) {
			v.Steps = v.Steps[:i]
			t.Errorf("%s, step %d:\nwant %s\ngot  %s\nafter\n%s", v.Title, i+1, want, got, encodeVector(t, v))
			return false
		}
	}
	return true
}

func (f vectorFile) call(limiter caller, step vectorStep) (reply vectorReply) {
	t, ctx, request := limiter.t, limiter.t.Context(), f.Events[step.event()].request()
	switch {
	case step.Admit != nil:
		reply.Decisions = vectorDecisions(limiter.admit(f.requests(step.Admit)...))
		reply.Lag = limiter.ClockLag().Microseconds()
	case step.DryRun != "":
		decision, err := limiter.DryRun(ctx, step.DryRun, step.Cost)
		kit.Check(t, err)
		reply.Decisions = vectorDecisions([]ratelimit.Decision{decision})
	case step.Begin != "":
		permit, err := limiter.Begin(ctx, ratelimit.Post{
			Request: request, Channel: postChannel, Known: step.Known, Name: step.Post,
			Longest: time.Duration(f.Lease) * time.Microsecond,
		})
		kit.Check(t, err)
		reply.Permit = vectorPermit{
			permitWords[permit.Status], permit.Posts, permit.Last, permit.Wait.Microseconds(),
		}
	case step.Answered != "":
		_, _, err := limiter.Answered(ctx, ratelimit.Answer{
			Request: request, Channel: postChannel, Name: step.Post,
			Posted: step.Answer == answerPosted, Failed: step.Answer == answerFailed,
		})
		kit.Check(t, err)
	case step.Sent != "":
		limiter.sent(request)
	case step.Refund != "" || step.Forfeit != "":
		release := limiter.Refund
		if step.Forfeit != "" {
			release = limiter.Forfeit
		}
		released, err := release(ctx, request, step.Known)
		kit.Check(t, err)
		reply.Released = &released
	case step.Peek != nil:
		for _, u := range limiter.peek(step.Peek...) {
			if u.Used == 0 {
				continue
			}
			scope := globalScope
			switch {
			case u.Group != "":
				scope = groupScope(u.Group)
			case u.Category != "":
				scope = categoryScope(u.Category)
			}
			usage := vectorUsage{scope, u.Tier.String(), u.Used, u.FreeIn.Microseconds(), u.AtLeast}
			reply.Usages = append(reply.Usages, usage)
		}
	}
	return reply
}

func (e vectorEvent) request() ratelimit.Request {
	return ratelimit.Request{
		ID: e.ID, Source: e.Source, Delivery: e.Delivery, Category: e.Category, Cost: e.Cost,
	}
}

func (f vectorFile) requests(names []string) (requests []ratelimit.Request) {
	for _, name := range names {
		requests = append(requests, f.Events[name].request())
	}
	return requests
}

func (r vectorRules) parse() ratelimit.Rules {
	rules := ratelimit.Rules{
		Global: mustParse(r.Global), Category: mustParse(r.Category),
		Overrides:      pattern.MustTable(mustParseAll(r.Overrides)),
		GroupOverrides: mustParseAll(r.GroupOverrides), Reserve: r.Reserve,
	}
	if r.Group != "" {
		rules.Group = mustParse(r.Group)
	}
	return rules
}

func mustParseAll(texts map[string]string) map[string]ratelimit.Limit {
	limits := map[string]ratelimit.Limit{}
	for name, text := range texts {
		limits[name] = mustParse(text)
	}
	return limits
}

func mustParseDuration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	kit.Check(t, err)
	return d
}

func vectorDecisions(decisions []ratelimit.Decision) (encoded []vectorDecision) {
	for _, d := range decisions {
		e := vectorDecision{
			Verdict: d.Verdict.Reason(), Used: d.Used, Reserved: d.Reserved,
			Wait: d.RetryAfter.Microseconds(), AtLeast: d.AtLeast, Never: d.Never,
			Posts: d.Posts, LastPost: d.LastPost,
		}
		if d.Verdict == ratelimit.Admitted {
			e.Verdict = "admitted"
		}
		if d.Tier.Count > 0 {
			e.Tier = d.Tier.String()
		}
		encoded = append(encoded, e)
	}
	return encoded
}

// encodeVectors writes each event and each step on a line of its own.
func encodeVectors(t *testing.T, f vectorFile) []byte {
	t.Helper()
	var events, histories [][]byte
	for _, name := range slices.Sorted(maps.Keys(f.Events)) {
		events = append(events, fmt.Appendf(nil, "%q:%s", name, mustMarshal(t, f.Events[name])))
	}
	for _, v := range f.Histories {
		histories = append(histories, encodeVector(t, v))
	}
	return fmt.Appendf(nil, "{\"lease\":%d,\n\"events\":{\n%s\n},\n\"histories\":[\n%s\n]}\n",
		f.Lease, lines(events), lines(histories))
}

func encodeVector(t *testing.T, v vector) []byte {
	t.Helper()
	var steps [][]byte
	for _, step := range v.Steps {
		steps = append(steps, mustMarshal(t, step))
	}
	v.Steps = nil
	head := bytes.TrimSuffix(mustMarshal(t, v), []byte("}"))
	return fmt.Appendf(head, ",\"steps\":[\n%s\n]}", lines(steps))
}

func lines(values [][]byte) []byte { return bytes.Join(values, []byte(",\n")) }

// mustMarshal does not escape characters such as >.
func mustMarshal(t *testing.T, value any) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	kit.Check(t, encoder.Encode(value))
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// clockKey holds the time that the scripts read during a replay, in microseconds since 1970.
const clockKey = "{n}:the clock"

// clocked is the head of a script in which TIME returns the time in clockKey. Keys still expire in real time,
// so histories begin in the far future and are shorter than the life of their keys.
const clocked = `
local redis = (function(real)
  return { pcall = real.pcall, call = function(command, ...)
    if command ~= 'TIME' then return real.call(command, ...) end
    local now = real.call('GET', '` + clockKey + `')
    local micros = tonumber(string.sub(now, -6)) -- without leading zeros, as in TIME's reply
    return { string.sub(now, 1, -7), tostring(micros) }
  end }
end)(redis)
`

// clockHook maps the digest of each script to the digest of its copy with a settable clock.
type clockHook map[string]string

func setClock(t *testing.T, client *redis.Client) clockHook {
	t.Helper()
	h := clockHook{}
	for _, script := range []string{lua.Admit, lua.Begin, lua.Answered, lua.Sent, lua.Refund, lua.Peek} {
		loaded, err := client.ScriptLoad(t.Context(), clocked+script).Result()
		kit.Check(t, err)
		h[redis.NewScript(script).Hash()] = loaded
	}
	return h
}

func (h clockHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h clockHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h clockHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		if command.Name() == "evalsha" {
			command.Args()[1] = h[command.Args()[1].(string)]
		}
		return next(ctx, command)
	}
}
