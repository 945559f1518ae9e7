package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// Setting is one environment variable, as the tags of its field define it.
type Setting struct {
	Name     string // of the variable
	Default  string
	Doc      string
	Group    string // field of Config that it belongs to
	Required bool
	Secret   bool // never printed, and also read from the file that NAME_FILE names

	kind  reflect.Type
	index []int // of the field in Config
}

// Settings lists every variable in the order of Config.
func Settings() []Setting {
	var all []Setting
	root := reflect.TypeFor[Config]()
	for i := range root.NumField() {
		all = appendSettings(all, root.Field(i).Type, root.Field(i).Name, root.Field(i).Tag.Get("envPrefix"), []int{i})
	}
	return all
}

func appendSettings(all []Setting, t reflect.Type, group, prefix string, parent []int) []Setting {
	for i := range t.NumField() {
		f, index := t.Field(i), append(slices.Clone(parent), i)
		tag, tagged := f.Tag.Lookup("env")
		if !tagged {
			if f.Type.Kind() == reflect.Struct {
				all = appendSettings(all, f.Type, group, prefix+f.Tag.Get("envPrefix"), index)
			}
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		all = append(all, Setting{
			Name: prefix + name, Default: f.Tag.Get("envDefault"), Doc: f.Tag.Get("doc"), Group: group,
			Required: f.Tag.Get("required") == "true" || strings.Contains(options, "required") || strings.Contains(options, "notEmpty"),
			Secret:   f.Tag.Get("secret") == "true", kind: f.Type, index: index,
		})
	}
	return all
}

var markdownText = strings.NewReplacer("|", `\|`, "<", "&lt;")

// Markdown is the table of all settings, as the README has it.
func Markdown() string {
	var b strings.Builder
	group := ""
	for _, s := range Settings() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n**%s**\n\n| variable | default | meaning |\n|---|---|---|\n", strings.ToLower(group))
		}
		def := "`" + s.Default + "`"
		switch {
		case s.Required:
			def = "**required**"
		case s.Default == "":
			def = ""
		}
		doc := s.Doc
		if s.Secret {
			doc += " Also as `" + s.Name + "_FILE`, the path of a file."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, def, markdownText.Replace(doc))
	}
	return strings.TrimPrefix(b.String(), "\n")
}
