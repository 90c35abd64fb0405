//go:build race

package main

// raceDetector: its shadow memory grows with every new address.
const raceDetector = true
