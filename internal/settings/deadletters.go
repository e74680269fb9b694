package settings

import "notifier/internal/event"

// LoadDeadLetterSubject reads and checks only DEAD_LETTER_SUBJECT or its default. The check depends on the
// stream and the pattern that LoadNATS returns. Errors are *Problems.
func LoadDeadLetterSubject(stream string, read event.Pattern) (string, error) {
	const variable = "DEAD_LETTER_SUBJECT"
	all := &Problems{}
	env := Read(all)
	problems := all.about([]string{variable})
	subject := env.DeadLetterSubject
	if subject == "" {
		subject = defaultDeadLetter(stream)
	}
	if !problems.unreadable(variable) {
		checkOutput(problems, variable, subject, "notify-dead", read)
	}
	return subject, problems.Err()
}
