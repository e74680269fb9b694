package published

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxBytes bounds a document. Settings that would make it longer are left out, the longest first: of these only a hash is
// published, so that it is known that they differ.
const MaxBytes = 64 << 10

// format is the form of the document. Settings that are added do not change it: whoever does not know one of them says so.
const format = 1

// maxError bounds the error of a document that anybody may have written.
const maxError = 300

// Document is a document as it was read: the settings as text, by the names of their variables.
type Document struct {
	Format   int               `json:"format"`
	Settings map[string]string `json:"settings"`
	LeftOut  map[string]string `json:"left_out,omitempty"` // too long: hashes of their texts
}

// Encode returns what a worker publishes, at most MaxBytes, and its fingerprint: the same for the same settings.
func (s Settings) Encode() (text, fingerprint string) {
	document := s.document()
	for {
		encoded, err := json.Marshal(document)
		if err != nil || len(encoded) <= MaxBytes { // maps of strings cannot fail
			return string(encoded), Fingerprint(string(encoded))
		}
		document.leaveOutLongest()
	}
}

func (s Settings) document() Document {
	document := Document{Format: format, Settings: map[string]string{}}
	for _, setting := range all {
		document.Settings[setting.name] = setting.write(s)
	}
	return document
}

func (d *Document) leaveOutLongest() {
	if d.LeftOut == nil {
		d.LeftOut = map[string]string{}
	}
	longest := slices.MaxFunc(slices.Sorted(maps.Keys(d.Settings)), func(a, b string) int { return len(d.Settings[a]) - len(d.Settings[b]) })
	d.LeftOut[longest] = Fingerprint(d.Settings[longest])
	delete(d.Settings, longest)
}

// Fingerprint is 16 hexadecimal digits that are the same for the same text.
func Fingerprint(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:8])
}

// ReadDocument reads what was published under a fingerprint. An error says what is wrong with it, in a few words.
func ReadDocument(text, fingerprint string) (Document, error) {
	var document Document
	switch {
	case text == "":
		return document, errors.New("they are not in Redis")
	case len(text) > MaxBytes:
		return document, fmt.Errorf("they have %d bytes, expected at most %d", len(text), MaxBytes)
	case Fingerprint(text) != fingerprint:
		return document, fmt.Errorf("they have the fingerprint %s, expected %s", Fingerprint(text), quoted(fingerprint))
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return Document{}, fmt.Errorf("they are no JSON as a worker writes it: %s", cut(err.Error(), maxError))
	}
	if document.Format != format {
		return Document{}, fmt.Errorf("they have the format %d, expected %d", document.Format, format)
	}
	return document, nil
}

// Decode returns the settings of a document. The error is everything that is wrong with it, on one line: what this version does
// not know may change what the others mean, so there are no settings then.
func (d Document) Decode() (Settings, error) {
	var s Settings
	var wrong []string
	known := map[string]bool{}
	for _, setting := range all {
		known[setting.name] = true
		text, found := d.Settings[setting.name]
		_, leftOut := d.LeftOut[setting.name]
		switch {
		case found && !leftOut:
			if err := setting.read(&s, text); err != nil {
				wrong = append(wrong, setting.name+" "+strings.ReplaceAll(err.Error(), "\n", "; "))
			}
		case found || !leftOut:
			wrong = append(wrong, setting.name+" is missing")
		case setting.absent == nil:
			wrong = append(wrong, setting.name+" is too long to be published")
		default:
			setting.absent(&s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Settings)) {
		if !known[name] {
			wrong = append(wrong, quoted(name)+" is unknown to this version")
		}
	}
	if len(wrong) == 0 {
		if err := s.Limits.CheckReserve(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return Settings{}, errors.New(cut(strings.Join(wrong, "; "), maxError))
	}
	return s, nil
}

// value is a setting as text, and whether the document has it.
func (d Document) value(name string) (text string, found bool) {
	if hash, leftOut := d.LeftOut[name]; leftOut {
		return "too long to be published, hash " + hash, true
	}
	text, found = d.Settings[name]
	return text, found
}

// cut bounds a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
