package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"notifier/internal/settings"
	"notifier/test/kit"
)

const promisedFile = "testdata/promised.txt"

var promise = flag.Bool("promise", false, "write what the next release promises to "+promisedFile)

// TestWhatIsPromised: every name that the last release promised still exists (docs/compatibility.md). The
// next release promises the new names too; make promise adds them.
func TestWhatIsPromised(t *testing.T) {
	t.Parallel()
	there := names(t)
	if *promise {
		text := "# What is promised from this release on, a name in each line; docs/compatibility.md says what that means. `make promise` writes it.\n"
		for _, name := range slices.Sorted(maps.Keys(there)) {
			text += name + "\n"
		}
		kit.Check(t, os.WriteFile(promisedFile, []byte(text), 0o644))
	}
	counts := map[string]int{}
	for line := range strings.Lines(read(t, "cmd/notifier/"+promisedFile)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		kind, _, _ := strings.Cut(line, " ")
		if counts[kind]++; !there[line] {
			t.Errorf("%q is promised, and not there any more. Keep it, or remove the line and write under \"Breaking\" in CHANGELOG.md what to do", line)
		}
	}
	for kind, least := range map[string]int{"setting": 40, "metric": 18, "line": 3, "field": 20, "word": 12, "header": 8, "key": 12, "command": 15, "flag": 40, "json": 100} {
		if counts[kind] < least {
			t.Errorf("%d promises are about a %s, expected at least %d", counts[kind], kind, least)
		}
	}
}

// names are all names that people and programs outside use, each after its kind.
func names(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, s := range settings.Variables() {
		all[fmt.Sprintf("setting %s=%s", s.Name, s.Default)] = true
	}
	for line := range strings.Lines(read(t, "observability/metrics.txt")) { // a test compares it with /metrics
		if found := strings.Fields(line); len(found) > 1 && found[0] != "#" && strings.HasPrefix(found[0], "notifier_") {
			all["metric "+strings.Join(found, " ")] = true
		}
	}
	addEventLine(t, all)
	key := regexp.MustCompile(`(?m)^//\t\{notifier\}:(\S+) +(sorted set|hash|string) `)
	for _, file := range []string{"internal/ratelimit/keys.go", "internal/status/report/report.go"} {
		for _, found := range key.FindAllStringSubmatch(read(t, file), -1) {
			all[fmt.Sprintf("key %s %s", found[1], found[2])] = true
		}
	}
	root := rootCommand()
	root.Writer = io.Discard
	kit.Check(t, root.Run(t.Context(), []string{"notifier", "-h"})) // adds the library's own commands and flags
	addCommands(all, "", root)
	for _, folder := range []string{"cmd", "internal"} {
		kit.Check(t, filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				addSource(all, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../"), file)
			}
			return err
		}))
	}
	return all
}

// addCommands adds a command with its aliases, flags and subcommands. Moved commands are not promised. The
// help flag, which every command has, counts once.
func addCommands(all map[string]bool, above string, command *cli.Command) {
	if command.SkipFlagParsing {
		return // see moved
	}
	for _, name := range command.Names() {
		all[strings.TrimSpace("command "+above+name)] = true
	}
	for _, f := range command.Flags {
		isHelp := slices.Contains(f.Names(), "help")
		if visible, is := f.(cli.VisibleFlag); is && !visible.IsVisible() || isHelp && above != "" {
			continue
		}
		for _, name := range f.Names() {
			all["flag "+above+command.Name+" -"+name] = true
		}
	}
	for _, below := range command.Commands {
		addCommands(all, above+command.Name+" ", below)
	}
}

// shownAsJSON lists the packages with types that -json prints or the admin server returns.
var shownAsJSON = []string{
	"cmd/notifier", "internal/admin", "internal/app", "internal/preflight", "internal/status", "internal/snapshot", "internal/steering",
	"internal/outcome", "internal/ratelimit",
}

// addEventLine adds the messages and fields of the log line of an event. Other lines are for people, and not
// promised.
func addEventLine(t *testing.T, all map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/consume/eventline.go", nil, 0)
	kit.Check(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BasicLit:
			if message, is := literal(node); is && strings.HasPrefix(message, "notification ") {
				all["line "+message] = true
			}
		case *ast.CallExpr: // zap.String("name", ...)
			function, isSelector := node.Fun.(*ast.SelectorExpr)
			if !isSelector || len(node.Args) < 2 {
				break
			}
			if of, isName := function.X.(*ast.Ident); isName && of.Name == "zap" {
				if name, is := literal(node.Args[0]); is {
					all["field "+name] = true
				}
			}
		}
		return true
	})
}

// addSource adds the JSON fields, words and headers that a source file declares.
func addSource(all map[string]bool, folder string, file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.TypeSpec:
			ofProgram := folder == "cmd/notifier" || folder == "internal/app" || node.Name.IsExported()
			if of, is := node.Type.(*ast.StructType); is && ofProgram && slices.Contains(shownAsJSON, folder) {
				addTags(all, filepath.Base(folder)+"."+node.Name.Name, of)
			}
		case *ast.ValueSpec:
			if folder != "internal/outcome" {
				break
			}
			for _, value := range node.Values {
				word, is := literal(value)
				switch {
				case is && strings.HasSuffix(word, "-"): // a header prefix
				case is && strings.Contains(word, "-"):
					all["header "+word] = true
				case is:
					all["word "+word] = true
				}
			}
		}
		return true
	})
}

// addTags adds the names that the fields of a type have in JSON.
func addTags(all map[string]bool, of string, fields *ast.StructType) {
	for _, field := range fields.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); name != "" && name != "-" {
			all["json "+of+" "+name] = true
		}
	}
}

// literal is the text of a string that is written out.
func literal(of ast.Expr) (text string, is bool) {
	value, is := of.(*ast.BasicLit)
	if !is || value.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(value.Value)
	return text, err == nil
}
