package settings

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/kelseyhightower/envconfig"

	"notifier/internal/redact"
	"notifier/internal/term"
)

// variable is one setting of a Settings value.
type variable struct {
	Variable
	tag   reflect.StructTag
	field reflect.Value // settable
}

// loader fills one Settings value.
type loader struct {
	settings  *Settings
	variables []variable
	need      map[string]bool
	problems  *Problems
	given     map[string]bool // needed variables whose text or default is not empty, or whose file cannot be read
	bad       map[string]bool // variables with a problem
}

// newLoader returns a loader of these groups and variables, or of all settings if needs is empty.
func newLoader(needs []string) *loader {
	s := &Settings{}
	l := &loader{
		settings: s, variables: variablesIn(s), problems: &Problems{},
		need: map[string]bool{}, given: map[string]bool{}, bad: map[string]bool{},
	}
	for _, v := range l.variables {
		group := v.tag.Get("group")
		l.need[v.Name] = len(needs) == 0 || slices.Contains(needs, v.Name) || slices.Contains(needs, group)
	}
	return l
}

// valid reports whether all of these variables are needed and have no problem.
func (l *loader) valid(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !l.need[name] || l.bad[name] })
}

// problem adds a problem of a setting.
func (l *loader) problem(name, format string, arguments ...any) {
	l.bad[name] = true
	l.problems.Add(name, format, arguments...)
}

// readEnvironment reads all needed settings from the environment, from files, or, for the
// variables in instead, from there.
func (l *loader) readEnvironment(instead map[string]string) []Origin {
	var fields []reflect.StructField
	for _, v := range l.variables {
		fields = append(fields, reflect.StructField{Name: v.Name, Type: reflect.TypeFor[string](), Tag: v.tag})
	}
	texts := reflect.New(reflect.StructOf(fields))
	if err := envconfig.Process("", texts.Interface()); err != nil { // impossible: each field is a string
		l.problem("environment", "%v", err)
		return nil
	}
	var origins []Origin
	for i, v := range l.variables {
		text, replaced := instead[v.Name]
		switch {
		case !l.need[v.Name]:
			_ = v.parse(v.Default) // a test parses all defaults
		case replaced:
			l.take(v, text)
		default:
			origins = append(origins, l.read(v, texts.Elem().Field(i).String()))
		}
	}
	if l.need["SLACK_BOT_TOKEN"] {
		l.checkProxies()
	}
	return origins
}

// read takes the text that envconfig has found, or the content of the variable's file. An empty text counts
// as unset, because docker-compose passes unset variables on as empty ones.
func (l *loader) read(v variable, text string) Origin {
	origin := Origin{Name: v.Name, Source: FromEnvironment, secret: v.tag.Get("secret")}
	if path := os.Getenv(v.Name + "_FILE"); path != "" {
		origin.Source, origin.File = FromFile, path
		if os.Getenv(v.Name) != "" {
			l.unknown(v, v.Name, "is set, and so is %s_FILE; expected only one of them", v.Name)
			return origin
		}
		content, err := readFile(path)
		if err == nil && strings.TrimSpace(string(content)) == "" {
			err = fmt.Errorf("%s is empty", path)
		}
		if err != nil {
			l.unknown(v, v.Name+"_FILE", "%v; expected a readable file with the value of %s", err, v.Name)
			return origin
		}
		text = strings.TrimRight(string(content), "\r\n") // editors add a line end
	}
	_, inEnvironment := os.LookupEnv(v.Name)
	if text == "" && v.tag.Get("empty") == "" {
		text = v.Default
		inEnvironment = false
	}
	if origin.File == "" && !inEnvironment {
		origin.Source = FromDefault
	}
	text = l.stripped(v.Name, text)
	l.take(v, text)
	origin.value = text
	return origin
}

// unknown adds a problem of a setting whose text cannot be known.
func (l *loader) unknown(v variable, name, format string, arguments ...any) {
	l.given[v.Name], l.bad[v.Name] = true, true
	l.problems.Add(name, format, arguments...)
	_ = v.parse(v.Default)
}

// stripped removes a byte order mark, a line end and quotes around a text, and reports them, because not
// every program that reads env files strips them.
func (l *loader) stripped(name, text string) string {
	if rest, found := strings.CutPrefix(text, "\ufeff"); found {
		l.problem(name, "begins with a byte order mark, which is invisible; save the file as UTF-8 without it")
		text = rest
	}
	if rest := strings.TrimRight(text, "\r\n"); rest != text {
		l.problem(name, "ends with a line end, as in files from Windows; convert the file with dos2unix")
		text = rest
	}
	if n := len(text); n >= 2 && strings.ContainsRune("\"'`", rune(text[0])) && text[0] == text[n-1] {
		l.problem(name, "begins and ends with a quotation mark; remove both, as env files of docker and "+
			"systemd may keep them")
		text = text[1 : n-1]
	}
	return text
}

// take parses a text into the field of its setting, or adds the problems with it.
func (l *loader) take(v variable, text string) {
	if text != "" {
		l.given[v.Name] = true
	}
	err := v.parse(text)
	switch _, ofFile := err.(fileError); {
	case err == nil:
	case v.tag.Get("secret") == "" && looksSecret(text) && !ofFile:
		l.problem(v.Name, "looks like a secret or a URL, so it is not shown; "+
			"a bot token is for SLACK_BOT_TOKEN, a webhook for SLACK_WEBHOOK_URL")
	default:
		l.invalid(v.Name, err)
	}
}

// invalid adds each of the errors that errors.Join has joined. A nil error adds none.
func (l *loader) invalid(name string, err error) {
	if joined, several := err.(interface{ Unwrap() []error }); several {
		for _, err := range joined.Unwrap() {
			l.invalid(name, err)
		}
	} else if err != nil {
		l.problem(name, "%v", err)
	}
}

// finish checks the settings together. It returns no settings and no open client if there is a problem.
func (l *loader) finish() (Settings, error) {
	l.checkTogether()
	if err := l.problems.Err(); err != nil {
		slices.SortStableFunc(l.problems.lines, func(a, b string) int {
			return cmp.Compare(l.place(a), l.place(b))
		})
		if client := l.settings.Store.Redis; client != nil {
			_ = client.Close() // nothing was written through it
		}
		return Settings{}, err
	}
	return *l.settings, nil
}

// place returns the position of a problem's setting in the list of all settings.
func (l *loader) place(line string) int {
	name, _, _ := strings.Cut(line, ": ")
	return slices.IndexFunc(l.variables, func(v variable) bool {
		return name == v.Name || name == v.Name+"_FILE"
	})
}

// IsSet reports whether a variable is set, directly or through its _FILE variant.
func IsSet(name string) bool { return os.Getenv(name) != "" || os.Getenv(name+"_FILE") != "" }

// Values of Origin.Source.
const (
	FromDefault     = "default"
	FromEnvironment = "environment"
	FromFile        = "file" // that X_FILE names
)

// Origin is one setting, and where its value came from.
type Origin struct {
	Name   string
	Source string
	File   string // path with FromFile

	value  string // may be a secret; show it with Shown
	secret string // the tag
}

// derive sets the value of an unset setting whose default is made of another setting.
func (o *Origin) derive(s *Settings) {
	switch {
	case o.Source != FromDefault:
	case o.Name == "DEAD_LETTER_SUBJECT":
		o.value = s.DeadLetter
	case o.Name == "DIGEST_CHANNEL":
		o.value = s.DigestChannel
	}
}

// Shown returns the value without the secrets that it can contain.
func (o Origin) Shown() string {
	if o.value == "" {
		return "(none)"
	}
	shown := o.value
	switch o.secret {
	case "", "file":
	case "servers":
		shown = redact.Servers(strings.Split(o.value, ","))
	case "redis":
		shown = redact.Redis(o.value)
	case "url":
		shown = redact.API(o.value)
	default: // the tag is never, or unknown
		return "set"
	}
	return term.Printable(shown)
}

// othersMayUse are the permissions of users who are neither owner nor in the group, to read and to write. The
// group is allowed, because a secret may reach a user through it (fsGroup in Kubernetes).
const othersMayUse = 0o006

// exposed describes the secret files that others may use.
func exposed(origins []Origin) []string {
	var list []string
	for _, o := range origins {
		name, path := o.Name+"_FILE", o.File
		if o.secret == "file" {
			name, path = o.Name, o.value
		}
		if o.secret == "" || path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode()&othersMayUse != 0 {
			list = append(list, fmt.Sprintf("%s: %s has mode %04o, so other users may read or write it",
				name, path, info.Mode().Perm()))
		}
	}
	return list
}
