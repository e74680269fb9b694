package settings

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
	"go.uber.org/zap/zapcore"

	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/status/config"
)

// parse converts a text into the field. Errors follow the variable's name. If the setting has the tag secret,
// they quote nothing.
func (v variable) parse(text string) (err error) {
	if text == "" && v.Default == "" { // unset
		return nil
	}
	switch field := v.field.Addr().Interface().(type) {
	case *string:
		*field = text
		return v.check(text)
	case *int:
		return v.number(text)
	case *int64:
		return v.number(text)
	case *time.Duration:
		return v.duration(text)
	case *bool:
		*field = text == v.words()[1]
		return v.choice(text)
	case *zapcore.Level:
		_ = field.Set(text) // choice has zap's own names
		return v.choice(text)
	case *event.Pattern:
		*field, err = parseSubject(text)
	case *ratelimit.Limit:
		*field, err = ratelimit.ParseLimit(text)
	case *ratelimit.Tier:
		*field, err = ratelimit.ParsePace(text)
	case *pattern.Table[ratelimit.Limit]:
		*field, err = ratelimit.ParseOverrides(text)
	case *map[string]ratelimit.Limit:
		*field, err = ratelimit.ParseGroupOverrides(text)
	case *map[string]int:
		*field, err = ratelimit.ParseReserve(text)
	case *pattern.Table[string]:
		*field, err = parseRoutes(text)
	default:
		err = fmt.Errorf("has no parser for %T", field)
	}
	return err
}

func (v variable) words() []string { return strings.Split(v.tag.Get("enum"), ",") }

func (v variable) choice(text string) error {
	words := v.words()
	if slices.Contains(words, text) {
		return nil
	}
	last := len(words) - 1
	return fmt.Errorf("%q, expected %s or %s", text, strings.Join(words[:last], ", "), words[last])
}

func (v variable) number(text string) error {
	least, most, _ := strings.Cut(v.tag.Get("range"), "..")
	n, err := strconv.ParseInt(text, 10, 64)
	from, _ := strconv.ParseInt(least, 10, 64)
	to, _ := strconv.ParseInt(most, 10, 64)
	if err != nil || n < from || n > to {
		return fmt.Errorf("%q, expected a whole number from %s to %s", text, least, most)
	}
	v.field.SetInt(n)
	return nil
}

func (v variable) duration(text string) error {
	bounds, orZero := strings.CutPrefix(v.tag.Get("range"), "0|")
	least, most, _ := strings.Cut(bounds, "..")
	d, err := time.ParseDuration(text)
	from, _ := time.ParseDuration(least)
	to, _ := time.ParseDuration(most)
	if err == nil && (d >= from && d <= to || orZero && d == 0) {
		v.field.SetInt(int64(d))
		return nil
	}
	zero := ""
	if orZero {
		zero = "0 or "
	}
	return fmt.Errorf("%q, expected %sa duration from %s to %s in h, m, s or ms", text, zero, least, most)
}

// kinds are the checks of texts. Errors about a secret quote nothing.
var kinds = map[string]func(string) error{
	"name":        checkName,
	"namespace":   ratelimit.ValidateNamespace,
	"subject":     checkSubject,
	"servers":     checkServers,
	"redis":       checkRedis,
	"channel":     checkChannel,
	"bot-token":   checkBotToken,
	"webhook":     checkWebhook,
	"api":         checkAPI,
	"addr":        checkAddr,
	"admin-token": checkAdminToken,
}

// files are the checks of files that a setting names.
var files = map[string]struct {
	expected string
	check    func(content []byte) error
}{
	"creds": {"credentials file with a user's JWT and seed", checkCreds},
	"seed":  {"file with a user's seed", checkSeed},
	"ca":    {"file with PEM certificates", checkCA},
	"cert":  {"file with a PEM certificate", nil},
	"key":   {"file with a PEM key", nil},
}

// fileError is about a file that a setting names. Its text never has the content.
type fileError struct{ error }

// check checks a text by its kind.
func (v variable) check(text string) error {
	kind := v.tag.Get("kind")
	if check, is := kinds[kind]; is {
		return check(text)
	}
	file, is := files[kind]
	if !is {
		return fmt.Errorf("has no check for kind %q", kind)
	}
	content, err := readFile(text)
	if err == nil && file.check != nil {
		if err = file.check(content); err != nil {
			err = fmt.Errorf("%s %w", text, err)
		}
	}
	if err != nil {
		return fileError{fmt.Errorf("%w; expected a readable %s", err, file.expected)}
	}
	return nil
}

func checkCreds(content []byte) error {
	_, seedErr := nkeys.ParseDecoratedUserNKey(content)
	jwt, err := nkeys.ParseDecoratedJWT(content)
	// Of a file with a seed alone ParseDecoratedJWT returns the seed, which the server would receive.
	if seedErr != nil || err != nil || !strings.HasPrefix(jwt, "ey") {
		return errors.New("contains no credentials")
	}
	return nil
}

func checkSeed(content []byte) error {
	if _, err := nkeys.ParseDecoratedUserNKey(content); err != nil {
		return errors.New("contains no user seed")
	}
	return nil
}

func checkCA(content []byte) error {
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return errors.New("contains no PEM certificate")
	}
	return nil
}

// maxFileBytes bounds a file of a setting: a secret, a list or certificates, not a disk image.
const maxFileBytes = 1 << 20

// secret matches Slack tokens, webhooks, URLs and keys. opaque matches seeds, admin tokens and JWTs.
var (
	secret = regexp.MustCompile(`(?i)://|hooks\.slack\.com|xox[abcdeprs][-.]|\bxapp-|-----BEGIN`)
	opaque = regexp.MustCompile(`(?i)^\W?[0-9a-z+=_-]{32,}\W*$|[0-9a-z]{32}|\beyJ[0-9a-z_-]+\.`)
)

// looksSecret reports whether a text may be a secret in the place of a setting or path.
func looksSecret(text string) bool {
	return secret.MatchString(text) || !strings.HasPrefix(text, "/") && opaque.MatchString(text)
}

// quoted quotes the text of a valid setting, unless it looks like a secret that was put into the wrong one.
func quoted(text string) string {
	if looksSecret(text) {
		return "(hidden, because it looks like a secret)"
	}
	return strconv.Quote(text)
}

// readFile reads a file that a setting names. Its errors name the path, unless the path may be a secret, and
// never have the content.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil && looksSecret(path) {
		return nil, errors.New("looks like a secret or a URL itself, and not like a path")
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxFileBytes)
	}
	return os.ReadFile(path)
}

func parseSubject(text string) (event.Pattern, error) {
	subject, err := event.ParsePattern(text)
	switch {
	case err != nil:
	case strings.ContainsAny(text, ",;"):
		err = fmt.Errorf("%q looks like several subjects, expected one", text)
	case strings.TrimLeft(text, "*.") == ">":
		err = fmt.Errorf(
			"%q takes every subject, also those of dead letters; expected a prefix, such as notify.>", text)
	}
	return subject, err
}

// maxSubjectPart bounds names and subject prefixes, in bytes.
const maxSubjectPart = 200

// checkName checks the name of a stream or a consumer.
func checkName(text string) error {
	if text == "" || len(text) > maxSubjectPart || !isASCII(text) || strings.ContainsAny(text, `.*>/\`) {
		return fmt.Errorf(`%q, expected a name without white space and . * > / \, of at most %d bytes`,
			text, maxSubjectPart)
	}
	return nil
}

// checkSubject checks a subject to publish to, or a prefix of one.
func checkSubject(text string) error {
	valid := isASCII(text) && len(text) <= maxSubjectPart && !strings.ContainsAny(text, "*>") &&
		!strings.HasPrefix(text, "$") && !slices.Contains(strings.Split(text, "."), "")
	if !valid {
		return fmt.Errorf("%q, expected a subject such as notify-dead, without wildcards and white space, "+
			"of at most %d bytes", text, maxSubjectPart)
	}
	return nil
}

// isASCII reports whether a text has printable ASCII characters alone, and no white space.
func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkServers checks the list of NATS servers. Each of them can contain a password.
func checkServers(list string) error {
	servers := strings.Split(list, ",")
	webSockets := 0
	for i, server := range servers {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		parsed, err := url.Parse(server)
		if err != nil || parsed.Host == "" || strings.Contains(parsed.Host, ";") ||
			!slices.Contains([]string{"nats", "tls", "ws", "wss"}, parsed.Scheme) || !mayBePort(parsed.Port()) {
			return fmt.Errorf("server %d of %d is not a NATS URL, expected nats://[user:password@]host:port or "+
				"tls://host:port, several separated by commas%s", i+1, len(servers), escaping(server))
		}
		if strings.HasPrefix(parsed.Scheme, "ws") {
			webSockets++
		}
	}
	if webSockets != 0 && webSockets != len(servers) {
		return errors.New("mixes ws:// or wss:// with other servers, expected one kind")
	}
	return nil
}

func mayBePort(text string) bool {
	return text == "" || isPort(text) && text != "0"
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// checkRedis rejects URLs that go-redis takes but that lead to no server. ratelimit.Open finds the rest.
func checkRedis(raw string) error {
	client, err := ratelimit.Open(raw, nil)
	if err == nil {
		_ = client.Close() // never connected
	}
	parsed, parseErr := url.Parse(raw)
	switch {
	case errors.Is(err, ratelimit.ErrInvalidURL):
		return fmt.Errorf("is not a Redis URL, %w%s", err, escaping(raw))
	case err != nil:
		return err
	case parseErr != nil:
		return nil
	case strings.ContainsAny(parsed.Host, ",;"):
		return errors.New("has several servers before its first parameter, expected one")
	case parsed.Query().Has("addr") && !parsed.Query().Has("master_name") &&
		strings.Trim(parsed.Path, "/0") != "":
		return errors.New(
			"names a database and, with addr=, a Cluster, which has database 0 alone; expected no database")
	}
	return nil
}

// escaping returns advice if the text before the last @ of a URL is not a valid user and password.
func escaping(raw string) string {
	_, rest, _ := strings.Cut(raw, "://")
	user := rest[:max(strings.LastIndex(rest, "@"), 0)]
	if _, err := url.PathUnescape(user); err == nil && !strings.ContainsAny(user, "#/?@[]") {
		return ""
	}
	return "; in a password # / ? @ and % are written %23 %2F %3F %40 and %25"
}

var notOfBots = regexp.MustCompile(`(?i)^(https?://|hooks\.slack\.com|xapp-|xoxe|xox[cds]-|slack_bot_token=)`)

// checkBotToken rejects other secrets. A user's token (xoxp-) can post. A token of token rotation
// (xoxe.xoxb-) may have expired, and Slack says so.
func checkBotToken(token string) error {
	switch {
	case !isASCII(token):
		return errors.New("contains white space or a character that no token has; " +
			"expected a bot token (xoxb-...)")
	case strings.HasPrefix(token, "xapp-"):
		return errors.New("is an app-level token (xapp-); expected the bot token (xoxb-...) of the app's page " +
			"OAuth & Permissions")
	case strings.Contains(token, "hooks.slack.com"):
		return errors.New("is a webhook; expected a bot token (xoxb-...), a webhook is for SLACK_WEBHOOK_URL")
	case notOfBots.MatchString(token) && !strings.HasPrefix(token, "xoxe.xoxb-"):
		return errors.New("is no bot token; expected one that begins with xoxb-")
	}
	return nil
}

func checkWebhook(raw string) error {
	switch {
	case strings.HasPrefix(raw, "xox"):
		return errors.New("is a token; expected a webhook URL, a bot token is for SLACK_BOT_TOKEN")
	case !slackout.IsHTTP(raw):
		return errors.New("is not a webhook URL; expected one that begins with https://hooks.slack.com/services/")
	}
	return nil
}

func checkAPI(raw string) error {
	if !slackout.IsHTTP(raw) {
		return errors.New("is not an http or https URL; expected one such as https://slack.com/api/, or nothing")
	}
	return nil
}

func parseRoutes(text string) (pattern.Table[string], error) {
	if secret.MatchString(text) {
		return pattern.Table[string]{}, checkChannel(text)
	}
	routes, err := config.ParseRoutes(text)
	wrong := []error{err}
	for name, channel := range routes.All() {
		if err := checkChannel(channel); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	return routes, errors.Join(wrong...)
}

var userID = regexp.MustCompile(`^[UW][0-9A-Z]{7,}$`)

func checkChannel(channel string) error {
	switch {
	case secret.MatchString(channel):
		return errors.New("looks like a secret or a URL; expected a channel such as C0123 or #alerts")
	case strings.ContainsAny(channel, " \t\r\n,;"):
		return fmt.Errorf("%q, expected one channel such as C0123 or #alerts, without white space", channel)
	case strings.HasPrefix(channel, "@") || userID.MatchString(channel):
		return fmt.Errorf(
			"%q names a person, expected a channel ID such as C0123 or a name such as #alerts", channel)
	}
	return nil
}

func checkAddr(addr string) error {
	if addr == "" {
		return nil // no admin server
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
		return fmt.Errorf("%q, expected host:port such as 127.0.0.1:8080, or nothing for no admin server", addr)
	}
	return nil
}

// Bounds of ADMIN_TOKEN, in characters. Clients may try any number of tokens, so a token must be too long to
// guess.
const (
	minAdminToken = 16
	maxAdminToken = 512
)

func checkAdminToken(token string) error {
	if len(token) < minAdminToken || len(token) > maxAdminToken || !isASCII(token) {
		return fmt.Errorf("is too short or too long, or contains white space or a character that no header can "+
			"have; expected %d to %d printable ASCII characters, such as those of: openssl rand -hex 32",
			minAdminToken, maxAdminToken)
	}
	return nil
}
