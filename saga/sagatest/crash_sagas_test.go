package sagatest_test

import (
	"context"
	"errors"

	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/saga"
	"github.com/tsuzuki-go/tsuzuki/saga/sagatest"
	"github.com/tsuzuki-go/tsuzuki/steps"
)

type purchase struct {
	No     string `json:"no"`
	Amount int64  `json:"amount"`
}

type purchaseRun = steps.Run[purchase]

var (
	purchaseKey  = saga.Key{Tenant: "t", ID: "o-1"}
	somePurchase = purchase{No: "o-1", Amount: 100}
)

// effect is a step's function that has one effect.
func effect(rec *sagatest.Recorder) func(context.Context, *purchaseRun) (string, error) {
	return func(ctx context.Context, r *purchaseRun) (string, error) {
		return rec.Effect(ctx, r.IdempotencyKey(), r.Input)
	}
}

// undo is a compensation that looks at Known.
func undo(rec *sagatest.Recorder) func(context.Context, *purchaseRun, steps.Outcome[string]) error {
	return func(ctx context.Context, r *purchaseRun, did steps.Outcome[string]) error {
		of := did.Key.String()
		if did.Known {
			of = did.Output
		}
		return rec.Undo(ctx, r.IdempotencyKey(), of)
	}
}

// found is a probe.
func found(rec *sagatest.Recorder) func(context.Context, *purchaseRun) (string, bool, error) {
	return func(ctx context.Context, r *purchaseRun) (string, bool, error) {
		return rec.Happened(ctx, r.IdempotencyKey())
	}
}

type booking struct{ Flight, Hotel, Car string }

// travel books a flight, a hotel and, if need be, a car, and undoes in reverse order.
func travel(rec *sagatest.Recorder) *saga.Definition[purchase, booking] {
	flight := steps.New("flight", effect(rec)).Compensate(undo(rec))
	hotel := steps.New("hotel", effect(rec)).Compensate(undo(rec))
	car := steps.New("car", effect(rec)).Compensate(undo(rec)).When(func(r *purchaseRun) bool { return r.Input.Amount > 50 })
	tell := steps.Do("tell", func(_ context.Context, r *purchaseRun) error {
		r.Emit(outbox.Message{Topic: "trip-booked", Key: r.Input.No, Body: flight.Output(r)})
		r.Emit(outbox.Message{Topic: "hotel-booked", Key: r.Input.No, Body: hotel.Output(r)})
		return nil
	}).Compensate(func(_ context.Context, r *purchaseRun, _ steps.Outcome[steps.None]) error {
		r.Emit(outbox.Message{Topic: "trip-cancelled", Key: r.Input.No, Body: r.Input.No})
		return nil
	})
	return saga.Define("book_trip", func(_ context.Context, r *purchaseRun) (booking, error) {
		c, _ := car.Lookup(r)
		return booking{flight.Output(r), hotel.Output(r), c}, nil
	}, flight, hotel, car, tell)
}

// soldOut is the same, with a hotel that refuses for good.
func soldOut(rec *sagatest.Recorder) *saga.Definition[purchase, booking] {
	flight := steps.New("flight", effect(rec)).Compensate(undo(rec))
	car := steps.New("car", effect(rec)).Compensate(undo(rec))
	insurance := steps.New("insurance", effect(rec))
	hotel := steps.New("hotel", func(context.Context, *purchaseRun) (string, error) {
		return "", steps.WithCode("sold_out", steps.Permanent(errors.New("no room is left")))
	}).Compensate(undo(rec))
	return saga.Define("book_trip", func(_ context.Context, r *purchaseRun) (booking, error) { return booking{}, nil }, flight, car, insurance, hotel)
}

// transfer moves money by a system that has no keys: at most once, and it can be asked.
func transfer(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
	hold := steps.New("hold", effect(rec)).Compensate(undo(rec))
	send := steps.New("send", effect(rec)).Compensate(undo(rec)).AtMostOnce().Probe(found(rec))
	settle := steps.New("settle", effect(rec)).NoCompensation()
	return saga.Define("transfer", func(_ context.Context, r *purchaseRun) (string, error) { return send.Output(r), nil }, hold, send, settle)
}

// checkout has a pivot: once the card is charged, it only goes forward.
func checkout(rec *sagatest.Recorder) *saga.Definition[purchase, string] {
	reserve := steps.New("reserve", effect(rec)).Compensate(undo(rec))
	look := steps.Do("look", func(ctx context.Context, r *purchaseRun) error { return rec.Call(ctx, r.IdempotencyKey(), r.Input.No) }).NoCompensation()
	charge := steps.New("charge", effect(rec)).Compensate(undo(rec)).Probe(found(rec)).Pivot()
	ship := steps.New("ship", func(ctx context.Context, r *purchaseRun) (string, error) {
		if _, err := rec.Effect(ctx, r.Sub("label").String(), charge.Output(r)); err != nil {
			return "", err
		}
		r.Emit(outbox.Message{Topic: "shipped", Key: r.Input.No, Body: r.Input.No})
		return rec.Effect(ctx, r.Sub("parcel").String(), r.Input.Amount)
	})
	return saga.Define("checkout", func(_ context.Context, r *purchaseRun) (string, error) { return ship.Output(r), nil }, reserve, look, charge, ship)
}
