// Package state is the record of a run and the contract of the stores that keep it.
//
// One [Record] per [Key] holds the current step and a flag per step. A holder changes it by [Change]s, each of which is
// refused unless the record's owner and revision are those that the holder has read (fencing, see Lamport's and
// Kleppmann's fencing tokens). A [Store] keeps records and hands out their unsent messages; the folders below are
// stores, and package statetest is the suite that every store passes.
package state
