package main

import "reflect"

// setting is a field of environment, as its tags describe it.
type setting struct{ name, preset string }

// settingTags are the settings in the order of the code.
func settingTags() []setting {
	fields := reflect.TypeFor[environment]()
	var settings []setting
	for i := range fields.NumField() {
		tag := fields.Field(i).Tag
		settings = append(settings, setting{tag.Get("envconfig"), tag.Get("default")})
	}
	return settings
}

// settingNames are the variables that notifier reads.
func settingNames() []string {
	var names []string
	for _, s := range settingTags() {
		names = append(names, s.name)
	}
	return names
}

// byName gives the values by the names of their variables.
func (env environment) byName() map[string]string {
	values := map[string]string{}
	for i, s := range settingTags() {
		values[s.name] = reflect.ValueOf(env).Field(i).String()
	}
	return values
}
