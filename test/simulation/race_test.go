//go:build race

package simulation

// raced: the race detector makes a history ten times as long; the same histories are played without it.
const raced = true
