package outbox_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/tsuzuki-go/tsuzuki/internal/brokertest"
	"github.com/tsuzuki-go/tsuzuki/outbox"
	"github.com/tsuzuki-go/tsuzuki/outbox/sqsoutbox"
	"github.com/tsuzuki-go/tsuzuki/state"
	"github.com/tsuzuki-go/tsuzuki/state/memory"
)

const (
	benchWorkers = 4
	benchBatch   = 100
)

// BenchmarkDrain measures, in turn and in one run, how many messages per second the bare publisher sends and how many a
// relay drains from a store, with as many calls under way and as many messages per call. The queue answers after 10 ms,
// about what SQS takes from within its region, or at once; with SQS_ENDPOINT, the queue is one of that server. Runs have
// three messages each.
func BenchmarkDrain(b *testing.B) {
	for name, open := range map[string]func(testing.TB) state.Store{
		"memory": func(testing.TB) state.Store { return memory.New() },
		"sqlite": func(t testing.TB) state.Store { return openSQLite(t) },
	} {
		for _, latency := range []time.Duration{10 * time.Millisecond, 0} {
			b.Run(fmt.Sprintf("%s/latency=%v", name, latency), func(b *testing.B) {
				sink := brokertest.NewSink(b, latency)
				cfg := brokertest.Config(b, sink.URL)
				benchDrain(b, open(b), cfg, "https://sqs.example/1/orders")
			})
		}
		b.Run(name+"/server", func(b *testing.B) {
			q := brokertest.NewQueue(b, false)
			benchDrain(b, open(b), brokertest.Config(b, brokertest.Endpoint(b, "SQS_ENDPOINT")), q.URL)
		})
	}
}

func benchDrain(b *testing.B, store state.Store, cfg aws.Config, url string) {
	b.Helper()
	cfg.HTTPClient.(*http.Client).Transport.(*http.Transport).MaxIdleConnsPerHost = benchWorkers
	p, err := sqsoutbox.New(b.Context(), sqs.NewFromConfig(cfg), url)
	require.NoError(b, err)
	r, err := outbox.NewRelay(store, p, outbox.WithWorkers(benchWorkers), outbox.WithBatch(benchBatch))
	require.NoError(b, err)
	const runs, each = 1000, 3
	var bare, relayed time.Duration
	for n := range b.N {
		var msgs []outbox.Message
		for i := range runs {
			run := fmt.Sprint("b", n, "-", i)
			own := plain(b, run, each)
			seed(b, store, run, own...)
			msgs = append(msgs, own...)
		}
		start := time.Now()
		publishAll(b, p, msgs)
		bare += time.Since(start)

		start = time.Now()
		require.NoError(b, r.Drain(b.Context()))
		relayed += time.Since(start)
	}
	require.EqualValues(b, b.N*runs*each, r.Stats().Sent)
	total := float64(b.N * runs * each)
	b.ReportMetric(total/bare.Seconds(), "bare/s")
	b.ReportMetric(total/relayed.Seconds(), "relayed/s")
	b.ReportMetric(100*bare.Seconds()/relayed.Seconds(), "%ofbare")
	b.ReportMetric(0, "ns/op")
}

// publishAll sends the messages with as many calls under way as the relay has workers.
func publishAll(b *testing.B, p outbox.Publisher, msgs []outbox.Message) {
	b.Helper()
	work := make(chan []outbox.Message)
	var wg sync.WaitGroup
	for range benchWorkers {
		wg.Go(func() {
			for batch := range work {
				res, err := p.Publish(context.Background(), batch)
				if err != nil || len(res) != len(batch) {
					b.Error("not all were sent", err)
				}
			}
		})
	}
	for len(msgs) > 0 {
		n := min(benchBatch, len(msgs))
		work <- msgs[:n]
		msgs = msgs[n:]
	}
	close(work)
	wg.Wait()
}
