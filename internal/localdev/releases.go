package localdev

import (
	"fmt"
	"slices"
)

// Release is one PostgreSQL that can be fetched: major, minor and the version of the Maven artifact
// that carries it.
type Release struct {
	Major, Minor int
	Artifact     string
}

func (r Release) String() string { return fmt.Sprintf("PostgreSQL %d.%d", r.Major, r.Minor) }

// Releases are the PostgreSQL versions that are fetched where they are not installed, newest first.
// This is the one place to change when a minor or a major comes out.
func Releases() []Release {
	return []Release{
		{18, 6, "18.6.0"},
		{17, 11, "17.11.0"},
		{16, 15, "16.15.0"},
		{15, 19, "15.19.0"},
		{14, 24, "14.24.0"},
	}
}

// tooOld is what walrelay refuses, for the test of that: it is had by its major only and never listed.
func tooOld() Release { return Release{13, 23, "13.23.0"} }

// releaseOf is the release of that major; 0 is the newest.
func releaseOf(major int) (Release, error) {
	all := Releases()
	switch major {
	case 0:
		return all[0], nil
	case tooOld().Major:
		return tooOld(), nil
	}
	i := slices.IndexFunc(all, func(r Release) bool { return r.Major == major })
	if i < 0 {
		return Release{}, fmt.Errorf("PostgreSQL %d cannot be fetched: %d to %d can", major, all[len(all)-1].Major, all[0].Major)
	}
	return all[i], nil
}
