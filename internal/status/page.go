package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Page is a status as the page shows it: ready texts. Times in texts are relative or, as UTC, end in Z,
// because only the browser knows the reader's time zone.
type Page struct {
	Summary  Summary
	Said     string    // the same as long as a screen reader has nothing new to read out
	Aloud    string    // what it reads out
	Time     time.Time // of the answer
	AsOf     time.Time // of all but the summary and This; zero: there is nothing else
	Stale    bool      // that is older than the answer
	Facts    []PageText
	Tiers    []PageBar
	Sections []PageSection
	This     []PageText
}

// PageText is a text with a title, or with the id of its element.
type PageText struct{ ID, Title, Text string }

// PageSection is a part of the page that folds.
type PageSection struct {
	ID, Title, Note string
	Timeline        *PageTimeline
	Hour            *PageChart
	Text            PageText
	List            []string
	Table           *PageTable
	More            string
}

// PageTable is a table, in which a row's first cell is its heading.
type PageTable struct {
	ID, Caption string
	Scopes      bool // with charts, and columns of the same width in each such table
	Columns     []PageColumn
	Rows        []PageRow
}

// PageColumn is the heading of a column, and how its cells look.
type PageColumn struct{ Title, Small, Class string }

// PageRow is a row of a table.
type PageRow struct {
	Key   string // no other row should have it
	Cells []PageCell
}

// PageCell is a cell. It has a text, a time that the browser shows in its own zone, or charts.
type PageCell struct {
	Text  string
	Time  *time.Time
	Small string // in small print, below
	Mark  string // a class for the text: ok, bad, many
	Bars  []PageBar
	Chart *PageChart
}

// PageBar is how much of a tier is used.
type PageBar struct {
	Label, Text string
	Used, Max   int
	Width       string // in percent
	Full        bool
	Room        *PageCell // of the global limit: when it has room
}

// PageChart is what was sent and dropped by the minute, as paths on 60 by 24 around a line at 12.
type PageChart struct{ Sent, Dropped, Text string }

// PageTimeline is how slots become free, as paths on 1000 by 100.
type PageTimeline struct {
	Taken, Edge, Frees, Text string
	Axis                     []string
}

// NewPage is the page of an answer: a Status, or an Unknown with the last status that was known, if any.
func NewPage(answer any, last *Status) Page {
	switch answer := answer.(type) {
	case Status:
		p := answer.page()
		p.Time, p.This = answer.Time, answer.This.texts()
		return p.saying(answer.Summary)
	case Unknown:
		var p Page
		if last != nil {
			p = last.page()
			p.Stale = true
		}
		p.Time, p.This = answer.Time, answer.This.texts()
		return p.saying(answer.Summary)
	}
	return Page{Time: time.Now().UTC()}
}

// ByID are the sections by their ids.
func (p Page) ByID() map[string]any {
	sections := map[string]any{}
	for _, section := range p.Sections {
		sections[section.ID] = section
	}
	return sections
}

// saying is the page with a summary. What is bad is read out, and not again with each figure.
func (p Page) saying(s Summary) Page {
	said, aloud := []string{s.Kind}, []string{s.Text}
	for _, line := range s.Attention {
		if line.Level == LevelBad {
			said, aloud = append(said, line.Kind), append(aloud, line.Text)
		}
	}
	p.Summary, p.Said, p.Aloud = s, strings.Join(said, ","), strings.Join(aloud, " ")
	return p
}

// page is all but the summary, and what a worker knows by itself.
func (s Status) page() Page {
	p := Page{AsOf: s.Time, Facts: s.facts()}
	for _, tier := range s.Global.Tiers {
		bar := newBar(tier, "Global limit "+tier.Limit)
		bar.Room = &PageCell{Text: "room now"}
		switch {
		case tier.FreeS > 0:
			at := tier.roomAt(s.Time)
			bar.Room = &PageCell{Time: &at, Small: "in " + spanText(at.Sub(s.Time), tier.AtLeast) + ", full until then"}
		case tier.keptOnly():
			bar.Room.Text = "room only for those it is kept for"
		}
		p.Tiers = append(p.Tiers, bar)
	}
	p.Sections = []PageSection{
		s.slotsSection(),
		s.groupsSection(),
		s.scopesSection("Category", "Categories", s.Categories, s.More, "The fullest first."),
		s.hourSection(),
		s.channelsSection(),
		s.steeringSection(),
		s.reservesSection(),
		s.replicasSection(),
		s.settingsSection(),
	}
	p.Sections = slices.DeleteFunc(p.Sections, func(section PageSection) bool { return section.ID == "" })
	return p
}

func (s Status) facts() []PageText {
	slots, pause := "", "none"
	if len(s.Global.Tiers) > 0 {
		slots = fmt.Sprintf("%d of %d", s.fullest().Used, s.fullest().Max)
	}
	if s.CooldownS > 0 {
		pause = seconds(s.CooldownS)
	}
	return []PageText{
		{"fact-slots", "Global slots", slots},
		{"fact-sent", "Sent, last hour", fmt.Sprint(s.Global.Sent)},
		{"fact-dropped", "Dropped, last hour", fmt.Sprint(s.Global.Dropped)},
		{"fact-held", "Held events", fmt.Sprint(s.Held)},
		{"fact-pause", "Slack’s pause", pause},
		{"fact-replicas", "Replicas", s.replicasText()},
	}
}

// fullest is the tier of the global limit that is nearest to being full.
func (s Status) fullest() (fullest Tier) {
	for i, tier := range s.Global.Tiers {
		if i == 0 || tier.Used*fullest.Max > fullest.Used*tier.Max {
			fullest = tier
		}
	}
	return fullest
}

func newBar(tier Tier, label string) PageBar {
	window, precision, _ := strings.Cut(tier.Limit[strings.Index(tier.Limit, "/")+1:], ":")
	text := fmt.Sprintf("%d of %d in %s", tier.Used, tier.Max, window)
	switch precision {
	case "":
	case "fixed":
		text = fmt.Sprintf("%d of %d in the current %s", tier.Used, tier.Max, window)
	default:
		text += ", by " + precision
	}
	if tier.Kept > 0 {
		text += fmt.Sprintf(", %d kept", tier.Kept)
	}
	used := min(tier.Used, tier.Max)
	return PageBar{
		Label: label, Text: text, Used: used, Max: tier.Max, Full: tier.FreeS > 0 || tier.keptOnly(),
		Width: fmt.Sprintf("%.1f", 100*float64(used)/float64(max(1, tier.Max))),
	}
}

// longest is the tier of the global limit that slots, holders and the timeline are about.
func (s Status) longest() (longest Tier, window time.Duration) {
	for _, tier := range s.Global.Tiers {
		if limit, err := ratelimit.ParseLimit(tier.Limit); err == nil && limit[0].Window > window {
			longest, window = tier, limit[0].Window
		}
	}
	return longest, window
}

func (s Status) slotsSection() PageSection {
	section := PageSection{ID: "slots", Title: "Slots", Note: "counted in buckets", Timeline: s.timeline()}
	section.Text = PageText{ID: "holders", Text: s.holdersText()}
	table := PageTable{Caption: "The newest slots of the global limit", Columns: []PageColumn{
		{Title: "Frees"}, {Title: "Category"}, {Title: "Admitted"}, {Title: "Event"},
	}}
	for _, slot := range s.Slots[:min(len(s.Slots), fewSlots)] {
		in := "in " + term.Duration(max(0, slot.Frees.Sub(s.Time)))
		category := cmp.Or(slot.Category, "unknown")
		table.Rows = append(table.Rows, PageRow{slot.ID, []PageCell{
			{Time: &slot.Frees, Small: in}, {Text: category}, {Time: &slot.At}, {Text: slot.ID},
		}})
	}
	if !s.InBuckets {
		longest, _ := s.longest()
		section.Note, section.Table = fmt.Sprintf("%d taken", longest.Used), &table
		section.More = andMore(longest.Used-len(table.Rows), "slot")
	}
	return section
}

// andMore is "and 3 more slots"; empty: there are none.
func andMore(n int, noun string) string {
	if n <= 0 {
		return ""
	}
	return "and " + term.Count(n, "more "+noun)
}

func (s Status) groupsSection() PageSection {
	if len(s.Groups) == 0 {
		return PageSection{}
	}
	caption := "Limits that all categories with the same first word share, the fullest first."
	return s.scopesSection("Group", "Groups", s.Groups, s.MoreGroups, caption)
}

// scopesSection has a row for each group or category.
func (s Status) scopesSection(name, plural string, scopes []Scope, more int, caption string) PageSection {
	table := &PageTable{ID: strings.ToLower(plural), Caption: caption, Scopes: true, Columns: []PageColumn{
		{Title: name, Class: "name"},
		{Title: "Used", Class: "used"},
		{Title: "Next free", Class: "next"},
		{
			Title: "Sent",
			Small: "last hour",
			Class: "number",
		},
		{Title: "Dropped", Small: "last hour", Class: "number"},
		{Title: "Last hour", Class: "chart"},
		{Title: "Last sent", Class: "last"},
	}}
	full := 0
	for _, scope := range scopes {
		table.Rows = append(table.Rows, s.scopeRow(scope))
		if scope.NextFree != nil {
			full++
		}
	}
	section := PageSection{
		ID: strings.ToLower(name) + "-section", Title: plural,
		Note: fmt.Sprint(len(scopes) + max(0, more)), Table: table, More: andMore(more, strings.ToLower(name)),
	}
	if full > 0 {
		section.Note += fmt.Sprintf(", %d full", full)
	}
	if len(scopes) == 0 {
		section.Table, section.More = nil, "No categories yet."
	}
	return section
}

func (s Status) scopeRow(scope Scope) PageRow {
	name := PageCell{Text: scope.name(), Small: s.causesText(scope.Category)}
	if scope.Category == stats.OtherCategory {
		name.Text = "other categories"
	}
	used := PageCell{}
	for _, tier := range scope.Tiers {
		used.Bars = append(used.Bars, newBar(tier, "Limit "+tier.Limit))
	}
	next := PageCell{Text: "now"}
	if f := scope.Forecast; f != nil && !f.Sends {
		next = PageCell{Time: f.At, Small: f.room(s.Time, scope.level())}
	}
	dropped := PageCell{Text: fmt.Sprint(scope.Dropped)}
	if scope.Dropped > 0 {
		dropped.Mark = "many"
	}
	chart := PageCell{Small: "not drawn for so many"}
	if scope.Minutes != nil {
		chart = PageCell{Chart: s.chart(scope)}
	}
	last := PageCell{Text: "–"}
	if scope.LastSent != nil {
		last = PageCell{Time: scope.LastSent, Small: ago(s.Time.Sub(*scope.LastSent))}
	}
	return PageRow{
		scope.name(),
		[]PageCell{name, used, next, {Text: fmt.Sprint(scope.Sent)}, dropped, chart, last},
	}
}

// causesText is who has caused the events of a category: "from a 12 (9 refused), b 3, and 2 more"; empty:
// that is not known.
func (s Status) causesText(category string) string {
	counts := s.Sources[category]
	if category == "" || len(counts) == 0 {
		return ""
	}
	var parts []string
	for _, count := range counts[:min(len(counts), tableSources)] {
		part := fmt.Sprintf("%s %d", sourceName(count), count.Total)
		if count.Refused > 0 {
			part += fmt.Sprintf(" (%d refused)", count.Refused)
		}
		parts = append(parts, part)
	}
	if more := len(counts) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return "from " + strings.Join(parts, ", ")
}

// chart draws the minutes of the last hour: what was sent goes up from the line, what was dropped goes down.
func (s Status) chart(scope Scope) *PageChart {
	first := s.Time.Truncate(time.Minute).Add(-59 * time.Minute)
	most, busiest := int64(1), Minute{}
	for _, minute := range scope.Minutes {
		most = max(most, minute.Sent, minute.Dropped)
		if minute.Sent+minute.Dropped > busiest.Sent+busiest.Dropped {
			busiest = minute
		}
	}
	var sent, dropped strings.Builder
	for _, minute := range scope.Minutes {
		x := minute.Start.Sub(first).Minutes() + .1
		if minute.Sent > 0 {
			fmt.Fprintf(&sent, "M%.1f 12v%.2fh.8V12z", x, -11.5*float64(minute.Sent)/float64(most))
		}
		if minute.Dropped > 0 {
			fmt.Fprintf(&dropped, "M%.1f 12v%.2fh.8V12z", x, 11.5*float64(minute.Dropped)/float64(most))
		}
	}
	text := fmt.Sprintf("%d sent and %d dropped in the last hour", scope.Sent, scope.Dropped)
	if !busiest.Start.IsZero() {
		when := ago(s.Time.Sub(busiest.Start).Truncate(time.Minute))
		text += fmt.Sprintf(
			"; the busiest minute, %s, had %d sent and %d dropped",
			when,
			busiest.Sent,
			busiest.Dropped,
		)
	}
	return &PageChart{sent.String(), dropped.String(), text + "."}
}

// timeline draws how the slots of the longest global window become free, if nothing else is sent.
func (s Status) timeline() *PageTimeline {
	longest, window := s.longest()
	t := &PageTimeline{Text: s.timelineText(longest), Axis: []string{"now"}}
	for quarter := range 4 {
		t.Axis = append(t.Axis, term.Duration(window*time.Duration(quarter+1)/4))
	}
	taken := max(longest.Used, len(s.Slots)) // a slot may have been taken between the two reads
	y := func(n int) float64 { return 100 - 100*float64(n)/float64(max(longest.Max, taken, 1)) }
	var edge, frees strings.Builder
	last := -1.0
	for i, slot := range slices.Backward(s.Slots) { // the one that is free first comes first
		x := min(1000, max(0, 1000*float64(slot.Frees.Sub(s.Time))/float64(max(window, 1))))
		fmt.Fprintf(&edge, "H%.1fV%.2f", x, y(i))
		if x-last >= .1 {
			fmt.Fprintf(&frees, "M%.1f 100v-9", x)
			last = x
		}
	}
	if len(s.Slots) > 0 {
		t.Edge = fmt.Sprintf("M0 %.2f%s", y(taken), edge.String())
		t.Taken, t.Frees = t.Edge+"H0z", frees.String()
	}
	return t
}

func (s Status) timelineText(tier Tier) string {
	known := len(s.Slots)
	taken := max(tier.Used, known)
	in := func(i int) string { return term.Duration(max(0, s.Slots[i].Frees.Sub(s.Time))) }
	switch {
	case s.InBuckets:
		return fmt.Sprintf("%s of %s taken. When each is free is not known: they are counted in buckets.",
			term.Count(tier.Used, "slot"), tier.Limit)
	case taken == 0:
		return "All slots are free."
	case known == 0:
		return fmt.Sprintf("%s of %s taken. There is no room to show when each is free.",
			term.Count(taken, "slot"), tier.Limit)
	case known < taken:
		return fmt.Sprintf("%d slots of %s are taken. "+
			"Only the newest %d are drawn: the first of them is free in %s, all of them in %s.",
			taken, tier.Limit, known, in(known-1), in(0))
	case taken == 1:
		return fmt.Sprintf("1 slot of %s is taken; it is free in %s.", tier.Limit, in(0))
	}
	return fmt.Sprintf("%d slots of %s are taken. The first is free in %s, half of them in %s, all in %s.",
		taken, tier.Limit, in(taken-1), in(taken/2), in(0))
}

const someLetters = "; kept as a dead letter, up to 60 a minute of each category"

// endings say for people how an event has ended.
var endings = map[string]string{
	outcome.Sent:      "in Slack",
	outcome.Global:    "the global limit was full, or what was left of it is kept for others",
	outcome.Group:     "the limit was full that the categories of its group share",
	outcome.Category:  "the category’s limit was full",
	outcome.Duplicate: "an event with the same id was sent before or is in flight",
	outcome.Reply:     "no event: NATS’ acknowledgement, for a publisher whose reply subject is one of events",
	outcome.Muted:     "muted by an operator",
	outcome.Expired:   "older than EVENT_MAX_AGE, on arrival or while it waited",

	outcome.Malformed:     "could not be read" + someLetters,
	outcome.TooLarge:      "too large" + someLetters,
	outcome.Unroutable:    "named a channel that is not configured" + someLetters,
	outcome.SlackRejected: "rejected by Slack; kept as a dead letter",
	outcome.Undeliverable: "Slack kept failing on it while it took others; kept as a dead letter",
}

func (s Status) hourSection() PageSection {
	table := &PageTable{ID: "outcomes", Caption: "Outcomes of the events of all categories together"}
	table.Columns = []PageColumn{
		{Title: "Outcome"}, {Title: "Reason", Class: "why"}, {Title: "Events", Class: "number"},
	}
	dead := int64(0)
	for _, o := range s.Outcomes {
		if o.Outcome == outcome.Dead {
			dead += o.N
		}
		cells := []PageCell{{Text: o.name()}, {Text: endings[cmp.Or(o.Reason, o.Outcome)]}, {Text: fmt.Sprint(o.N)}}
		table.Rows = append(table.Rows, PageRow{o.name(), cells})
	}
	note := fmt.Sprintf("%d sent, %d dropped, %d dead", s.Global.Sent, s.Global.Dropped, dead)
	return PageSection{
		ID:    "hour-section",
		Title: "The last hour",
		Note:  note,
		Hour:  s.chart(s.Global),
		Table: table,
	}
}

// channelsSection shows what waits for each channel, which channels are paused, and which refuse everything.
func (s Status) channelsSection() PageSection {
	section := PageSection{ID: "channel-section", Title: "Channels"}
	waiting := 0
	for _, u := range s.Unposted {
		waiting += u.Events
		section.List = append(section.List, u.Text)
	}
	section.Note = term.Count(waiting, "event") + " waiting"
	for _, pause := range s.Pauses {
		section.List = append(section.List, pause.Text)
	}
	if len(s.Pauses) > 0 {
		section.Note += fmt.Sprintf(", %d paused", len(s.Pauses))
	}
	refused := refusedTexts(s.Replicas)
	section.List = append(section.List, refused...)
	if len(refused) > 0 {
		section.Note += fmt.Sprintf(", %d refusing", len(refused))
	}
	if len(section.List) == 0 {
		section.More = "No event waits for a channel, none is paused, and none rejects messages."
	}
	return section
}

func (s Status) steeringSection() PageSection {
	all := len(s.Steering) + s.MoreSteering
	if all == 0 {
		return PageSection{}
	}
	section := PageSection{ID: "steering-section", Title: "Mutes and temporary limits"}
	section.Note = fmt.Sprintf("%d in force", all)
	for _, order := range s.Steering {
		section.List = append(section.List, orderText(order, s.Time))
	}
	section.More = andMore(s.MoreSteering, "order")
	return section
}

func (s Status) reservesSection() PageSection {
	if len(s.Reserves) == 0 {
		return PageSection{}
	}
	kept := 0
	for _, reserve := range s.Reserves {
		kept += reserve.Kept
	}
	return PageSection{
		ID: "reserve-section", Title: "Reserves", Note: term.Count(kept, "slot") + " kept",
		Text: PageText{ID: "reserves", Text: s.reservesText()},
	}
}

func (s Status) replicasSection() PageSection {
	table := &PageTable{ID: "replicas", Caption: "Replicas seen within the last minute", Columns: []PageColumn{
		{Title: "Replica"}, {Title: "State", Class: "state"}, {Title: "Holds", Class: "number"},
		{Title: "Waits for", Class: "waits wide"}, {Title: "Running since"}, {Title: "Seen"}, {Title: "Version"},
	}}
	for _, replica := range s.Replicas {
		state := PageCell{Text: "ready", Mark: "ok"}
		held := fmt.Sprint(replica.Held)
		var waits []string
		for _, wait := range replica.Waits {
			waits = append(waits, cmp.Or(wait.Channel, wait.For))
		}
		waitsFor := cmp.Or(strings.Join(waits, ", "), "nothing")
		switch {
		case replica.Silent:
			state, held, waitsFor = PageCell{Text: "silent", Mark: "bad"}, "–", "–"
		case !replica.Ready:
			state = PageCell{Text: "not ready", Mark: "bad"}
		}
		table.Rows = append(table.Rows, PageRow{replica.ID, []PageCell{
			{Text: replica.ID}, state, {Text: held}, {Text: waitsFor}, {Time: &replica.Started},
			{Time: &replica.Seen, Small: ago(s.Time.Sub(replica.Seen))}, {Text: replica.Version},
		}})
	}
	section := PageSection{ID: "replica-section", Title: "Workers", Note: s.replicasText(), Table: table}
	section.More = andMore(s.MoreReplicas, "replica")
	if len(s.Replicas) == 0 {
		section.Table, section.More = nil, cmp.Or(section.More, "No replica was seen within the last minute.")
	}
	return section
}

// replicasText is how many replicas run. Ready ones can be without use, as long as nothing is sent.
func (s Status) replicasText() string {
	running := len(stats.Running(s.Replicas))
	all, text := running+s.MoreReplicas, "none"
	switch {
	case all == 0:
	case s.Summary.Level == LevelBad:
		text = fmt.Sprint(all)
	case s.Ready == all:
		text = fmt.Sprintf("%d ready", all)
	default:
		text = fmt.Sprintf("%d of %d ready", s.Ready, all)
	}
	if silent := len(s.Replicas) - running; silent > 0 {
		text += fmt.Sprintf(", %d silent", silent)
	}
	return text
}

// settingsSection shows whether all replicas have the same settings.
func (s Status) settingsSection() PageSection {
	section := PageSection{ID: "settings-section", Title: "Settings", Note: "the same in all replicas"}
	section.List = s.Settings.Warnings
	if len(s.Settings.Warnings) > 0 {
		section.Note = "not the same in all replicas"
	}
	section.Text = PageText{ID: "settings", Text: s.Settings.OwnText}
	if s.Settings.Fingerprint != "" {
		section.Text.Text = fmt.Sprintf("The limits above are those of %s (settings %s).",
			term.Count(s.Settings.Replicas, "replica"), s.Settings.Fingerprint)
	}
	return section
}

// texts are what a worker knows by itself.
func (t *This) texts() []PageText {
	if t == nil {
		return nil
	}
	ready, last, redis := "no", "nothing since it was started", "stores everything"
	if t.Ready {
		ready = "yes"
	}
	if t.LastSent != nil {
		last = ago(t.Time.Sub(*t.LastSent))
	}
	if t.Redis.State != RedisOK {
		redis = t.Redis.Text + ": " + t.Redis.Reason
	}
	var held, paused []string
	for _, why := range slices.Sorted(maps.Keys(t.HeldFor)) {
		held = append(held, fmt.Sprintf("%s %d", why, t.HeldFor[why]))
	}
	for _, p := range t.Paused {
		paused = append(paused, p.Channel+" for "+seconds(p.LeftS))
	}
	holds := fmt.Sprint(t.Held)
	if len(held) > 0 {
		holds += " (" + strings.Join(held, ", ") + ")"
	}
	return []PageText{
		{Title: "Replica", Text: t.Replica}, {Title: "Host", Text: t.Host}, {Title: "Version", Text: t.Version},
		{Title: "Running for", Text: seconds(t.UptimeS)}, {Title: "Ready", Text: ready},
		{Title: "Events in flight", Text: fmt.Sprintf("%d, %d being posted", t.InFlight, t.Posting)},
		{Title: "Held events", Text: holds}, {Title: "Last sent", Text: last},
		{Title: "Paused channels", Text: cmp.Or(strings.Join(paused, ", "), "none")}, {Title: "Redis", Text: redis},
	}
}
