package kit

import (
	"bytes"
	"strings"
	"sync"
)

// Output collects the output of a program.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Lines are the complete lines that hold all of the texts.
func (o *Output) Lines(texts ...string) []string {
	var found []string
	for line := range strings.Lines(o.String()) {
		holds := strings.HasSuffix(line, "\n")
		for _, text := range texts {
			holds = holds && strings.Contains(line, text)
		}
		if holds {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}
