// What tests have azeventhubs do. Every operation takes a place (connection, hub, webSocket, ca) and gives facts.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
)

// The SDK tries three times with seconds between: a test that fails should do so sooner.
var quick = azeventhubs.RetryOptions{MaxRetries: 1, RetryDelay: 50 * time.Millisecond}

var eventHubs = map[string]operation{
	"sendBatch":     with(sendBatch),
	"sendBatches":   with(sendBatches),
	"receive":       with(receive),
	"receiveLatest": with(receiveLatest),
	"contend":       with(contend),
	"describe":      with(describeHub),
	"process":       with(process),
	"processBlobs":  with(processWithBlobs),
	"shareHub":      with(shareHub),
}

type place struct {
	Connection string `json:"connection"`
	Hub        string `json:"hub"`
	WebSocket  bool   `json:"webSocket"`
	CA         string `json:"ca"`
}

type event struct {
	Body          string         `json:"body"`
	Properties    map[string]any `json:"properties"`
	MessageID     *string        `json:"messageId"`
	CorrelationID any            `json:"correlationId"`
	ContentType   *string        `json:"contentType"`
}

func eventHubsCode(err error) string {
	if known := new(azeventhubs.Error); errors.As(err, &known) {
		return string(known.Code)
	}
	if refused := new(amqp.Error); errors.As(err, &refused) {
		return string(refused.Condition)
	}
	if detached := new(amqp.LinkError); errors.As(err, &detached) && detached.RemoteErr != nil {
		return string(detached.RemoteErr.Condition)
	}
	if errors.Is(err, azeventhubs.ErrEventDataTooLarge) {
		return "too large for the batch"
	}
	return ""
}

// --- clients

type dialer = func(ctx context.Context, given azeventhubs.WebSocketConnParams) (net.Conn, error)

// transport is how a place is reached: the authority to trust, and a WebSocket when it is one.
func (at place) transport() (*tls.Config, dialer, error) {
	trusted, err := trust(at.CA)
	if trusted != nil {
		// The SDK takes the port for a part of the name unless it is given the name.
		trusted.ServerName = "localhost"
	}
	if err != nil || !at.WebSocket {
		return trusted, nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	return trusted, func(ctx context.Context, given azeventhubs.WebSocketConnParams) (net.Conn, error) {
		options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: client}
		connection, _, err := websocket.Dial(ctx, given.Host, options)
		if err != nil {
			return nil, err
		}
		connection.SetReadLimit(-1)
		return websocket.NetConn(context.Background(), connection, websocket.MessageBinary), nil
	}, nil
}

func (at place) producer() (*azeventhubs.ProducerClient, error) {
	trusted, dial, err := at.transport()
	if err != nil {
		return nil, err
	}
	options := &azeventhubs.ProducerClientOptions{RetryOptions: quick, TLSConfig: trusted, NewWebSocketConn: dial}
	return azeventhubs.NewProducerClientFromConnectionString(at.Connection, at.Hub, options)
}

func (at place) consumer(group string) (*azeventhubs.ConsumerClient, error) {
	trusted, dial, err := at.transport()
	if err != nil {
		return nil, err
	}
	if group == "" {
		group = azeventhubs.DefaultConsumerGroup
	}
	options := &azeventhubs.ConsumerClientOptions{RetryOptions: quick, TLSConfig: trusted, NewWebSocketConn: dial}
	return azeventhubs.NewConsumerClientFromConnectionString(at.Connection, at.Hub, group, options)
}

func end(client interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = client.Close(ctx)
}

// --- sending

type sending struct {
	Place     place   `json:"place"`
	Events    []event `json:"events"`
	Partition *string `json:"partition"`
	Key       *string `json:"key"`
}

func send(ctx context.Context, producer *azeventhubs.ProducerClient, given sending) (map[string]any, error) {
	options := &azeventhubs.EventDataBatchOptions{PartitionID: given.Partition, PartitionKey: given.Key}
	batch, err := producer.NewEventDataBatch(ctx, options)
	if err != nil {
		return nil, err
	}
	for _, one := range given.Events {
		data := &azeventhubs.EventData{
			Body: []byte(one.Body), Properties: one.Properties, MessageID: one.MessageID,
			CorrelationID: one.CorrelationID, ContentType: one.ContentType,
		}
		if err := batch.AddEventData(data, nil); err != nil {
			return nil, err
		}
	}
	facts := map[string]any{"fitted": batch.NumEvents(), "sizeBytes": batch.NumBytes()}
	return facts, producer.SendEventDataBatch(ctx, batch, nil)
}

func sendBatch(ctx context.Context, given sending) (any, error) {
	producer, err := given.Place.producer()
	if err != nil {
		return nil, err
	}
	defer end(producer)
	return send(ctx, producer, given)
}

// sendBatches sends each event in a batch of its own, all over one link.
func sendBatches(ctx context.Context, given sending) (any, error) {
	producer, err := given.Place.producer()
	if err != nil {
		return nil, err
	}
	defer end(producer)
	for _, one := range given.Events {
		alone := given
		alone.Events = []event{one}
		if _, err := send(ctx, producer, alone); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// --- receiving

type start struct {
	Offset    *string `json:"offset"`
	Sequence  *int64  `json:"sequence"`
	TimeMs    *int64  `json:"timeMs"`
	Inclusive bool    `json:"inclusive"`
}

func (from start) position() azeventhubs.StartPosition {
	position := azeventhubs.StartPosition{
		Offset: from.Offset, SequenceNumber: from.Sequence, Inclusive: from.Inclusive,
	}
	if from.TimeMs != nil {
		position.EnqueuedTime = to.Ptr(time.UnixMilli(*from.TimeMs))
	}
	if from.Offset == nil && from.Sequence == nil && from.TimeMs == nil {
		position.Earliest = to.Ptr(true)
	}
	return position
}

type receiving struct {
	Place     place  `json:"place"`
	Group     string `json:"group"`
	Partition string `json:"partition"`
	Count     int    `json:"count"`
	Prefetch  int32  `json:"prefetch"`
	Start     start  `json:"start"`
}

func shown(one *azeventhubs.ReceivedEventData) map[string]any {
	return map[string]any{
		"body": string(one.Body), "sequence": one.SequenceNumber, "offset": one.Offset,
		"enqueuedMs": one.EnqueuedTime.UnixMilli(), "key": one.PartitionKey, "properties": one.Properties,
		"messageId": one.MessageID, "correlationId": one.CorrelationID, "contentType": one.ContentType,
	}
}

// read waits for so many events of a partition, however many calls that takes.
func read(
	ctx context.Context, reader *azeventhubs.PartitionClient, count int,
) ([]map[string]any, error) {
	events := []map[string]any{}
	for len(events) < count {
		received, err := reader.ReceiveEvents(ctx, count-len(events), nil)
		for _, one := range received {
			events = append(events, shown(one))
		}
		if err != nil {
			return events, err
		}
	}
	return events, nil
}

func receive(ctx context.Context, given receiving) (any, error) {
	consumer, err := given.Place.consumer(given.Group)
	if err != nil {
		return nil, err
	}
	defer end(consumer)
	options := &azeventhubs.PartitionClientOptions{StartPosition: given.Start.position(), Prefetch: given.Prefetch}
	reader, err := consumer.NewPartitionClient(given.Partition, options)
	if err != nil {
		return nil, err
	}
	defer end(reader)
	return read(ctx, reader, given.Count)
}

// receiveLatest reads from the end of partition 0 while events are published until one arrives.
func receiveLatest(ctx context.Context, given receiving) (any, error) {
	producer, err := given.Place.producer()
	if err != nil {
		return nil, err
	}
	defer end(producer)
	consumer, err := given.Place.consumer("")
	if err != nil {
		return nil, err
	}
	defer end(consumer)
	reader, err := consumer.NewPartitionClient("0", nil)
	if err != nil {
		return nil, err
	}
	defer end(reader)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for ctx.Err() == nil {
			body := sending{Events: []event{{Body: "new"}}, Partition: to.Ptr("0")}
			_, _ = send(ctx, producer, body)
		}
	}()
	return read(ctx, reader, 1)
}

// contend has an owner read partition 0 until a newcomer with a higher level takes it over.
func contend(ctx context.Context, given receiving) (any, error) {
	consumer, err := given.Place.consumer("")
	if err != nil {
		return nil, err
	}
	defer end(consumer)
	newcomers, err := given.Place.consumer("")
	if err != nil {
		return nil, err
	}
	defer end(newcomers)
	owner, err := owning(consumer, 1)
	if err != nil {
		return nil, err
	}
	defer end(owner)
	if _, err := read(ctx, owner, 1); err != nil {
		return nil, err
	}
	newcomer, err := owning(newcomers, 2)
	if err != nil {
		return nil, err
	}
	defer end(newcomer)
	events, err := read(ctx, newcomer, 1)
	if err != nil {
		return nil, err
	}
	_, lost := read(ctx, owner, 1)
	return map[string]any{"newcomerReads": len(events) == 1, "owner": eventHubsCode(lost)}, nil
}

func owning(consumer *azeventhubs.ConsumerClient, level int64) (*azeventhubs.PartitionClient, error) {
	options := &azeventhubs.PartitionClientOptions{StartPosition: start{}.position(), OwnerLevel: to.Ptr(level)}
	return consumer.NewPartitionClient("0", options)
}

// --- asking

func describeHub(ctx context.Context, given receiving) (any, error) {
	producer, err := given.Place.producer()
	if err != nil {
		return nil, err
	}
	defer end(producer)
	hub, err := producer.GetEventHubProperties(ctx, nil)
	if err != nil {
		return nil, err
	}
	partitions := []any{}
	for _, id := range hub.PartitionIDs {
		one, err := producer.GetPartitionProperties(ctx, id, nil)
		if err != nil {
			return nil, err
		}
		partitions = append(partitions, map[string]any{
			"id": one.PartitionID, "isEmpty": one.IsEmpty, "beginning": one.BeginningSequenceNumber,
			"last": one.LastEnqueuedSequenceNumber, "lastOffset": one.LastEnqueuedOffset,
			"lastMs": one.LastEnqueuedOn.UnixMilli(),
		})
	}
	return map[string]any{
		"name": hub.Name, "createdMs": hub.CreatedOn.UnixMilli(), "partitions": partitions,
		"isGeoReplicated": hub.GeoReplicationEnabled,
	}, nil
}

// --- processing

type processing struct {
	Place     place   `json:"place"`
	Events    []event `json:"events"`
	Partition *string `json:"partition"`
	Count     int     `json:"count"`
}

// process runs two processors in turn: the first reads and checkpoints some events, the second goes on from there.
func process(ctx context.Context, given processing) (any, error) {
	store := newMemoryCheckpoints()
	first, err := processed(ctx, given.Place, store, given.Count)
	if err != nil {
		return nil, err
	}
	more := sending{Place: given.Place, Events: given.Events, Partition: given.Partition}
	if _, err := sendBatch(ctx, more); err != nil {
		return nil, err
	}
	second, err := processed(ctx, given.Place, store, len(given.Events))
	return map[string]any{"first": first, "second": second}, err
}

func newProcessor(consumer *azeventhubs.ConsumerClient, store *memoryCheckpoints) (*azeventhubs.Processor, error) {
	return azeventhubs.NewProcessor(consumer, store, &azeventhubs.ProcessorOptions{
		LoadBalancingStrategy:       azeventhubs.ProcessorStrategyGreedy,
		UpdateInterval:              500 * time.Millisecond,
		PartitionExpirationDuration: time.Minute,
		StartPositions:              azeventhubs.StartPositions{Default: start{}.position()},
	})
}

func processed(ctx context.Context, at place, store *memoryCheckpoints, count int) ([]string, error) {
	consumer, err := at.consumer("")
	if err != nil {
		return nil, err
	}
	defer end(consumer)
	processor, err := newProcessor(consumer, store)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	bodies := make(chan string, count)
	go func() {
		for reader := processor.NextPartitionClient(ctx); reader != nil; reader = processor.NextPartitionClient(ctx) {
			go checkpointing(ctx, reader, bodies)
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(ctx) }()
	all := []string{}
	for len(all) < count {
		select {
		case body := <-bodies:
			all = append(all, body)
		case <-ctx.Done():
			return all, ctx.Err()
		}
	}
	stop()
	return all, <-ended
}

func checkpointing(ctx context.Context, reader *azeventhubs.ProcessorPartitionClient, bodies chan<- string) {
	defer end(reader)
	for {
		events, err := reader.ReceiveEvents(ctx, 1, nil)
		for _, one := range events {
			if reader.UpdateCheckpoint(ctx, one, nil) != nil {
				return
			}
			bodies <- string(one.Body)
		}
		if err != nil {
			return
		}
	}
}

// shareHub runs two processors until each has a partition; which partitions each has had by then.
func shareHub(ctx context.Context, given processing) (any, error) {
	store := newMemoryCheckpoints()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	for range 2 {
		consumer, err := given.Place.consumer("")
		if err != nil {
			return nil, err
		}
		defer end(consumer)
		processor, err := newProcessor(consumer, store)
		if err != nil {
			return nil, err
		}
		waiting.Go(func() { _ = processor.Run(ctx) })
		waiting.Go(func() {
			for reader := processor.NextPartitionClient(ctx); reader != nil; reader = processor.NextPartitionClient(ctx) {
				waiting.Go(func() { checkpointing(ctx, reader, make(chan string, 1)) })
			}
		})
	}
	for ctx.Err() == nil {
		owners := map[string]int{}
		known, _ := store.ListOwnership(ctx, "", "", "", nil)
		for _, one := range known {
			owners[one.OwnerID]++
		}
		if len(owners) == 2 && len(known) == given.Count {
			shares := []int{}
			for _, share := range owners {
				shares = append(shares, share)
			}
			return shares, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, ctx.Err()
}
