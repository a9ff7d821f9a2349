package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// MarshalRecord is the record as JSON, for export, for test data and for operators' eyes; stores have forms of their own.
// The names are those that stores use for their attributes. Payloads are strings, and so come back byte by byte, whatever
// program has had the JSON in hands meanwhile; times are milliseconds since 1970, "expiration" and "retention" seconds.
// The same record always gives the same bytes. Errors are of class [ErrInvalidInput]: a payload that is not JSON, a text
// that is not UTF-8, a key or status that is none, a time before 1970 or after the year 9999.
func MarshalRecord(r *Record) ([]byte, error) {
	j := toJSON(r)
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("run %s: %w: the record can't be written as JSON: %w", r.Key, ErrInvalidInput, err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(j); err != nil {
		return nil, fmt.Errorf("run %s: %w: the record can't be written as JSON: %w", r.Key, ErrInvalidInput, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalRecord is the inverse of [MarshalRecord]. Errors are [ErrNewerRecord], or of class [ErrCorrupt] for what
// MarshalRecord would never have written; they quote nothing of the data. Data of any kind is safe to pass in.
func UnmarshalRecord(data []byte) (*Record, error) {
	if _, err := Canonical(data); err != nil { // duplicate names, broken text, bottomless nesting
		return nil, fmt.Errorf("%w: it is not acceptable JSON", ErrCorrupt)
	}
	var header struct {
		Version int `json:"record_version"`
	}
	switch err := json.Unmarshal(data, &header); {
	case err != nil:
		return nil, corrupt(err)
	case header.Version > RecordVersion:
		return nil, fmt.Errorf("%w: version %d, this one reads up to %d", ErrNewerRecord, header.Version, RecordVersion)
	case header.Version < 1:
		return nil, fmt.Errorf("%w: no record_version", ErrCorrupt)
	}
	var j recordJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return nil, corrupt(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: trailing data", ErrCorrupt)
	}
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return j.record(), nil
}

// corrupt says where decoding failed; the decoder's own message may quote the data.
func corrupt(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%w: %s is of the wrong type or out of range", ErrCorrupt, wrong.Field)
	}
	return fmt.Errorf("%w: it has a field that version %d has not", ErrCorrupt, RecordVersion)
}

const (
	maxMilli  = 253402300799999 // the end of the year 9999
	maxSecond = maxMilli / 1000
	// maxRetention is the most seconds that a time.Duration holds.
	maxRetention = 1<<63/1_000_000_000 - 1
)

func (j *recordJSON) check() error {
	if _, err := ParseKey(j.Key); err != nil {
		return fmt.Errorf("idempotency_key: %w", err)
	}
	if !j.Status.Valid() {
		return errors.New("status is none of this version")
	}
	if j.EndsAs != "" && !j.EndsAs.Ended() {
		return errors.New("ends_as is not the status of an end")
	}
	if j.Expires < 0 || j.Expires > maxSecond {
		return errors.New("expiration is out of range")
	}
	if j.Retention < 0 || j.Retention > maxRetention {
		return errors.New("retention is out of range")
	}
	for i, s := range j.Steps {
		if !s.Status.Valid() {
			return fmt.Errorf("steps[%d].status is none of this version", i)
		}
	}
	return checkValues("", reflect.ValueOf(j).Elem())
}

// checkValues checks what holds for every field of a kind: texts are UTF-8, payloads JSON, times in range, counts not
// negative.
func checkValues(path string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if err := checkValues(path+"."+v.Type().Field(i).Name, v.Field(i)); err != nil {
				return err
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		for i := range v.Len() {
			if err := checkValues(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if !utf8.ValidString(it.Key().String()) || !utf8.ValidString(it.Value().String()) {
				return fmt.Errorf("%s is not valid UTF-8", path[1:])
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return checkValues(path, v.Elem())
		}
	default:
		return checkValue(path, v)
	}
	return nil
}

func checkValue(path string, v reflect.Value) error {
	switch {
	case v.Kind() == reflect.String && !utf8.ValidString(v.String()):
		return fmt.Errorf("%s is not valid UTF-8", path[1:])
	case v.Type() == reflect.TypeFor[payloadJSON]() && !json.Valid([]byte(v.String())):
		return fmt.Errorf("%s is not JSON", path[1:])
	case v.Type() == reflect.TypeFor[milliJSON]() && v.Int() > maxMilli:
		return fmt.Errorf("%s is out of range", path[1:])
	case v.CanInt() && v.Int() < 0:
		return fmt.Errorf("%s is out of range", path[1:])
	}
	return nil
}
