// Package upgrade holds runs that earlier versions of the library have written, one folder of testdata for each version
// of the record, and resumes them with the present one: as portable JSON, as a SQLite file and as DynamoDB items. It has
// tests only. testdata/README.md says how a version gets its folder.
package upgrade
