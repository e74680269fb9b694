package settings

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// Environment is every setting as text, in the order of docs/configuration.md. The tags are the one list of
// names and defaults, and of those that must not be shown as they are (origin.go). Parse turns the texts into
// values.
type Environment struct {
	NATSURL             string `envconfig:"NATS_URL" default:"nats://127.0.0.1:4222" shown:"servers"`
	NATSMode            string `envconfig:"NATS_MODE"` // of v0.1.0
	NATSSubject         string `envconfig:"NATS_SUBJECT" default:"notify.>"`
	NATSStream          string `envconfig:"NATS_STREAM" default:"NOTIFY"`
	NATSStreamMaxBytes  string `envconfig:"NATS_STREAM_MAX_BYTES" default:"0"`
	NATSConsumer        string `envconfig:"NATS_CONSUMER" default:"notifier"`
	NATSReplicas        string `envconfig:"NATS_REPLICAS" default:"0"`
	NATSCredsFile       string `envconfig:"NATS_CREDS_FILE"`
	NATSNKeyFile        string `envconfig:"NATS_NKEY_FILE"`
	NATSTLSCA           string `envconfig:"NATS_TLS_CA"`
	NATSTLSCert         string `envconfig:"NATS_TLS_CERT"`
	NATSTLSKey          string `envconfig:"NATS_TLS_KEY"`
	RedisURL            string `envconfig:"REDIS_URL" default:"redis://127.0.0.1:6379/0" shown:"redis"`
	RedisNamespace      string `envconfig:"REDIS_NAMESPACE" default:"notifier"`
	RedisTLSCA          string `envconfig:"REDIS_TLS_CA"`
	RedisTLSCert        string `envconfig:"REDIS_TLS_CERT"`
	RedisTLSKey         string `envconfig:"REDIS_TLS_KEY"`
	LimitGlobal         string `envconfig:"LIMIT_GLOBAL" default:"100/30m"`
	LimitCategory       string `envconfig:"LIMIT_CATEGORY" default:"10/30m"`
	LimitOverrides      string `envconfig:"LIMIT_OVERRIDES"`
	LimitGroup          string `envconfig:"LIMIT_GROUP"`
	LimitGroupOverrides string `envconfig:"LIMIT_GROUP_OVERRIDES"`
	LimitReserve        string `envconfig:"LIMIT_RESERVE"`
	DedupeWindow        string `envconfig:"DEDUPE_WINDOW" default:"24h"`
	EventMaxAge         string `envconfig:"EVENT_MAX_AGE" default:"0"`
	EventMaxBytes       string `envconfig:"EVENT_MAX_BYTES" default:"65536"`

	SlackBotToken   string `envconfig:"SLACK_BOT_TOKEN" shown:"never"`
	SlackWebhookURL string `envconfig:"SLACK_WEBHOOK_URL" shown:"never"`
	SlackChannel    string `envconfig:"SLACK_CHANNEL"`
	SlackRoutes     string `envconfig:"SLACK_ROUTES"`
	SlackAPIURL     string `envconfig:"SLACK_API_URL" shown:"api"`
	SlackMarkup     string `envconfig:"SLACK_MARKUP" default:"escape"`
	SlackTimeout    string `envconfig:"SLACK_TIMEOUT" default:"10s"`
	SlackPace       string `envconfig:"SLACK_PACE" default:"10/10s"`

	SendConcurrency    string `envconfig:"SEND_CONCURRENCY" default:"8"`
	BatchSize          string `envconfig:"BATCH_SIZE" default:"512"`
	DeadLetterSubject  string `envconfig:"DEAD_LETTER_SUBJECT"`
	DeadLetterMaxBytes string `envconfig:"DEAD_LETTER_MAX_BYTES" default:"268435456"`
	DroppedSubject     string `envconfig:"DROPPED_SUBJECT"`
	DigestInterval     string `envconfig:"DIGEST_INTERVAL" default:"0"`
	DigestChannel      string `envconfig:"DIGEST_CHANNEL"`
	AdminAddr          string `envconfig:"ADMIN_ADDR" default:"127.0.0.1:8080" emptyMeansNone:"true"`
	AdminToken         string `envconfig:"ADMIN_TOKEN" shown:"never"`
	ShutdownTimeout    string `envconfig:"SHUTDOWN_TIMEOUT" default:"25s"`
	LogLevel           string `envconfig:"LOG_LEVEL" default:"info"`
	LogFormat          string `envconfig:"LOG_FORMAT" default:"json"`
}

// Variable is one setting: its name and the value that holds where it is not set.
type Variable struct{ Name, Default string }

// Variables are all settings, in the order of docs/configuration.md.
func Variables() []Variable {
	fields := reflect.TypeFor[Environment]()
	variables := make([]Variable, fields.NumField())
	for i := range variables {
		tag := fields.Field(i).Tag
		variables[i] = Variable{Name: tag.Get("envconfig"), Default: tag.Get("default")}
	}
	return variables
}

// Default returns the environment with no variable set.
func Default() Environment {
	var env Environment
	fields := reflect.ValueOf(&env).Elem()
	for i, variable := range Variables() {
		fields.Field(i).SetString(variable.Default)
	}
	return env
}

// IsSet reports whether a variable is set, directly or through its _FILE variant.
func IsSet(name string) bool { return os.Getenv(name) != "" || fileOf(name) != "" }

// fileOf returns the path in the _FILE variant of a variable, or "".
func fileOf(name string) string { return os.Getenv(name + "_FILE") }

// Read reads every variable, from the environment or from the file that X_FILE names, and adds unreadable
// ones to problems. Set but empty counts as unset, because docker-compose passes unset variables on as empty
// ones.
func Read(problems *Problems) Environment {
	env, _ := read(problems)
	return env
}

// read is Read, and returns where the value of each variable came from.
func read(problems *Problems) (Environment, []Origin) {
	var env Environment
	if err := envconfig.Process("", &env); err != nil {
		// Every field is a text, so there is nothing that envconfig could fail to parse.
		problems.Add("environment", "%v", err)
		return env, nil
	}
	fields := reflect.ValueOf(&env).Elem()
	origins := make([]Origin, fields.NumField())
	for i := range fields.NumField() {
		origins[i] = readVariable(problems, fields.Field(i), fields.Type().Field(i).Tag)
	}
	problems.judge(env)
	return env, origins
}

// byName is an environment as a map.
func byName(env Environment) map[string]string {
	fields := reflect.ValueOf(env)
	values := make(map[string]string, fields.NumField())
	for i, variable := range Variables() {
		values[variable.Name] = fields.Field(i).String()
	}
	return values
}

// readVariable completes the value of one variable, which envconfig has set where the environment has it.
func readVariable(problems *Problems, value reflect.Value, tag reflect.StructTag) Origin {
	name := tag.Get("envconfig")
	origin := Origin{Name: name, rule: tag.Get("shown"), Source: FromEnvironment}
	if path := fileOf(name); path != "" {
		if os.Getenv(name) != "" {
			problems.Add(name, "is set, and so is %s_FILE; expected only one of them (an empty one is not set)", name)
			return Origin{}
		}
		content, err := readFile(path)
		if err == nil && strings.TrimSpace(string(content)) == "" { // an empty file is a mistake
			err = fmt.Errorf("%s is empty", path)
		}
		if err != nil {
			problems.Add(name+"_FILE", "%v; expected a readable file with the value of %s", err, name)
			value.SetString(tag.Get("default")) // so that there is no second problem
			return Origin{}
		}
		value.SetString(strings.TrimRight(string(content), "\r\n")) // without the line end that editors leave
		origin.Source, origin.File = FromFile, path
	}
	if value.String() == "" && tag.Get("emptyMeansNone") == "" {
		value.SetString(tag.Get("default"))
		origin.Source, origin.File = FromDefault, ""
	} else if _, set := os.LookupEnv(name); !set && origin.Source == FromEnvironment {
		origin.Source = FromDefault
	}
	value.SetString(bare(problems, name, value.String()))
	origin.value = value.String()
	return origin
}

// unknownIn lists the variables of the environment that resemble a setting but are not one.
func unknownIn(origins []Origin) []UnknownVariable {
	set := map[string]bool{}
	for _, origin := range origins {
		set[origin.Name] = origin.Source != FromDefault
	}
	var names []string
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); value != "" { // empty: not set
			names = append(names, name)
		}
	}
	return unknownVariables(names, set)
}

// bare strips a byte order mark, a line end and quotes around a value. Programs that read env files strip them
// differently, so bare reports them as problems. Later checks see the stripped value.
func bare(problems *Problems, name, value string) string {
	if rest, found := strings.CutPrefix(value, "\ufeff"); found {
		problems.Add(
			name,
			"begins with a byte order mark, which cannot be seen; expected none: save the file as UTF-8 without it",
		)
		value = rest
	}
	if rest := strings.TrimRight(value, "\r\n"); rest != value {
		problems.Add(
			name,
			"ends with a line end, as those of files that were written on Windows do; expected none: convert the file with dos2unix",
		)
		value = rest
	}
	for _, quote := range []string{`"`, "'", "`"} {
		if len(value) >= 2 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			problems.Add(
				name,
				"begins and ends with a quotation mark; expected none: docker run --env-file, systemd's and other files keep them as part of the value",
			)
			return value[1 : len(value)-1]
		}
	}
	return value
}
