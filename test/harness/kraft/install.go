// Package kraft runs a real Apache Kafka for tests: one node that is broker and controller, from
// the jars of a Maven repository, so that a JDK and mvn are all that a machine needs.
package kraft

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"walrelay/internal/localdev"
)

// Version is the Apache Kafka in pom.xml.
const Version = "4.4.0"

const (
	oldestJava = 17
	fetchLimit = 10 * time.Minute // 43 MB in 45 files
)

// The jars of Kafka and what they need, as Maven reads it.
//
//go:embed pom.xml
var pom []byte

// ErrUnavailable: Kafka cannot run here; the text says what is missing.
var ErrUnavailable = errors.New("no Apache Kafka here")

// Install is Kafka in the cache folder, with a Java that can run it.
type Install struct {
	java      string
	jars      string // folder
	formatted string // an empty data folder, ready to be copied
}

// Find returns Kafka from the cache folder; where it is not there and fetch is set, mvn brings it.
// ErrUnavailable is the answer where there is no Java 17, no mvn or nothing to fetch from.
func Find(ctx context.Context, cfg localdev.Config, fetch bool, progress func(string)) (*Install, error) {
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := localdev.CacheFolder(cfg)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, "kafka-"+Version)
	in := &Install{java: java, jars: filepath.Join(folder, "jars"), formatted: filepath.Join(folder, "formatted")}
	if in.whole() {
		return in, nil
	}
	if !fetch {
		return nil, fmt.Errorf("%w: its jars are not fetched yet: make test fetches them", ErrUnavailable)
	}
	unlock, err := localdev.LockFile(ctx, filepath.Join(cache, ".lock-kafka-"+Version))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if in.whole() {
		return in, nil // another process did it while this one waited
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := in.fetch(ctx, cache, folder, progress); err != nil {
		return nil, err
	}
	return in, nil
}

// whole: the folder is renamed into place when all of it is there.
func (in *Install) whole() bool {
	_, err := os.Stat(in.formatted)
	return err == nil
}

func (in *Install) fetch(ctx context.Context, cache, folder string, progress func(string)) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w: no mvn in PATH (install Maven)", ErrUnavailable)
	}
	work, err := os.MkdirTemp(cache, "fetching-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return fmt.Errorf("write pom.xml: %w", err)
	}
	if progress != nil {
		progress("fetching Apache Kafka " + Version + " (43 MB, only once)")
	}
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", filepath.Join(work, "pom.xml"),
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(work, "jars"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: mvn: %w\n%s", ErrUnavailable, err, out)
	}
	// Formatting takes a JVM start of two seconds: done once here, copied for each broker.
	made := &Install{java: in.java, jars: filepath.Join(work, "jars"), formatted: filepath.Join(work, "formatted")}
	if err := made.format(ctx, work); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove a broken copy: %w", err)
	}
	if err := os.Rename(work, folder); err != nil {
		return fmt.Errorf("move into place: %w", err)
	}
	return os.Chmod(folder, 0o755)
}

func (in *Install) format(ctx context.Context, work string) error {
	properties := filepath.Join(work, "server.properties")
	if err := writeProperties(properties, settings{Port: 9092, Controller: 9093, Advertised: "127.0.0.1:9092", Data: in.formatted}); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, in.java, "-cp", filepath.Join(in.jars, "*"),
		"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's data folder: %w\n%s", err, out)
	}
	return nil
}

// clusterID is 16 bytes in base64, as Kafka wants it. Each broker is a cluster of its own.
const clusterID = "d2FscmVsYXktdGVzdHMtMQ"

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findJava(ctx context.Context) (string, error) {
	java := filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java")
	if os.Getenv("JAVA_HOME") == "" {
		found, err := exec.LookPath("java")
		if err != nil {
			return "", fmt.Errorf("%w: no java in PATH (install a JDK, %d or later, and Maven)", ErrUnavailable, oldestJava)
		}
		java = found
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: ask %s for its version: %w", ErrUnavailable, java, err)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%w: %s -version says %q", ErrUnavailable, java, out)
	}
	if major, _ := strconv.Atoi(string(m[1])); major < oldestJava { // digits, by the pattern
		return "", fmt.Errorf("%w: %s is Java %d, and %d or later is needed", ErrUnavailable, java, major, oldestJava)
	}
	return java, nil
}
