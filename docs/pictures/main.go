// Command pictures takes the pictures of the README: of the status page, after an hour of events that really
// went through three workers, and of the output of the demo. Only the clock of Redis is not real: it is moved
// through that hour in about a minute. It needs a Chromium. Run it with make pictures.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const (
	folder   = "docs/pictures"
	deadline = 5 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	temporary, err := os.MkdirTemp("", "notifier-pictures-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	for _, program := range []string{"notifier", "notifier-dev"} {
		build := exec.CommandContext(
			ctx,
			"go",
			"build",
			"-ldflags",
			"-X notifier/internal/buildinfo.version=v1.0.0",
			"-o",
			filepath.Join(temporary, program),
			"./cmd/"+program,
		)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	demo, err := exec.CommandContext(ctx, filepath.Join(temporary, "notifier-dev"), "demo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("notifier-dev demo: %w\n%s", err, demo)
	}
	if err := write("demo.svg", terminalPicture("go run ./cmd/notifier-dev demo", demo)); err != nil {
		return err
	}
	stack, err := startStack(ctx, filepath.Join(temporary, "notifier"))
	if err != nil {
		return err
	}
	defer stack.close()
	if err := stack.hour(ctx); err != nil {
		return err
	}
	return photograph(ctx, stack.pages[0])
}

func write(name string, content []byte) error {
	log.Printf("%s/%s: %d KB", folder, name, (len(content)+1023)/1024)
	return os.WriteFile(filepath.Join(folder, name), content, 0o644)
}

// terminalPicture draws lines as a terminal shows them.
func terminalPicture(command string, output []byte) []byte {
	const across, down, margin = 8.43, 19, 20 // of a letter of 14 px, and around all of it
	lines := append(
		[][]byte{[]byte("$ " + command)},
		bytes.Split(bytes.TrimRight(output, "\n"), []byte("\n"))...)
	widest := 0
	for _, line := range lines {
		widest = max(widest, len(line))
	}
	width, height := int(float64(widest)*across)+2*margin, len(lines)*down+2*margin
	var svg bytes.Buffer
	fmt.Fprintf(
		&svg,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="What notifier-dev demo prints">
<style>text{font:14px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e5e8ec;white-space:pre}.c{fill:#4ade80}</style>
<rect width="100%%" height="100%%" rx="8" fill="#14171c"/>
`,
		width,
		height,
		width,
		height,
	)
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	for i, line := range lines {
		class := ""
		if i == 0 {
			class = ` class="c"`
		}
		fmt.Fprintf(
			&svg,
			`<text x="%d" y="%d" xml:space="preserve"%s>%s</text>`+"\n",
			margin,
			margin+14+i*down,
			class,
			escape.Replace(string(line)),
		)
	}
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}
