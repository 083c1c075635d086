// What tests have franz-go do, with its administrative package kadm.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

var franz = map[string]operation{
	"produce":       with(franzProduce),
	"read":          with(franzRead),
	"consume":       with(franzConsume),
	"share":         with(franzShare),
	"transact":      with(franzTransact),
	"fence":         with(franzFence),
	"createTopic":   with(franzCreateTopic),
	"growTopic":     with(franzGrowTopic),
	"deleteTopic":   with(franzDeleteTopic),
	"topics":        with(franzTopics),
	"configs":       with(franzConfigs),
	"alterConfigs":  with(franzAlterConfigs),
	"groups":        with(franzGroups),
	"describeGroup": with(franzDescribeGroup),
	"groupOffset":   with(franzGroupOffset),
	"moveGroup":     with(franzMoveGroup),
	"deleteGroup":   with(franzDeleteGroup),
	"bounds":        with(franzBounds),
	"offsetAt":      with(franzOffsetAt),
	"deleteRecords": with(franzDeleteRecords),
}

func franzCode(err error) string {
	if known := new(kerr.Error); errors.As(err, &known) {
		return number(known.Code)
	}
	return ""
}

func franzClient(at kafkaPlace, more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(at.Broker),
		kgo.SASL(plain.Auth{User: at.User, Pass: at.Password}.AsMechanism()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(200 * time.Millisecond),
		// A test that fails should do so soon.
		kgo.RetryTimeout(100 * time.Second),
		kgo.RecordRetries(5),
	}
	trusted, err := at.tls()
	if err != nil {
		return nil, err
	}
	if trusted != nil {
		options = append(options, kgo.DialTLSConfig(trusted))
	}
	return kgo.NewClient(append(options, more...)...)
}

func franzAdmin(at kafkaPlace) (*kadm.Client, error) {
	client, err := franzClient(at)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

// --- producing

var franzCodecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func franzOptions(given producing) []kgo.Opt {
	// The node's limit shall judge, not the client's own.
	limit := kgo.ProducerBatchMaxBytes(5_000_000)
	options := []kgo.Opt{limit, kgo.ProducerBatchCompression(franzCodecs[given.Codec])}
	if !given.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if given.Acks != nil {
		acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}
		options = append(options, kgo.RequiredAcks(acks[*given.Acks]))
	}
	return options
}

func franzRecord(topic string, one record) *kgo.Record {
	made := &kgo.Record{Topic: topic, Partition: one.Partition, Key: bytesOf(one.Key), Value: bytesOf(one.Value)}
	if one.TimeMs != 0 {
		made.Timestamp = time.UnixMilli(one.TimeMs)
	}
	for _, pair := range one.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
	}
	return made
}

func franzProduce(ctx context.Context, given producing) (any, error) {
	client, err := franzClient(given.Place, franzOptions(given)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, one := range given.Records {
		records = append(records, franzRecord(given.Topic, one))
	}
	results := client.ProduceSync(ctx, records...)
	offsets := []int64{}
	for _, result := range results {
		if result.Err != nil {
			return nil, result.Err
		}
		offsets = append(offsets, result.Record.Offset)
	}
	return offsets, nil
}

// --- consuming

func franzShown(one *kgo.Record) record {
	made := record{
		Partition: one.Partition, Offset: one.Offset, Key: textOf(one.Key), Value: textOf(one.Value),
		TimeMs: one.Timestamp.UnixMilli(), Headers: []header{},
	}
	for _, pair := range one.Headers {
		made.Headers = append(made.Headers, header{pair.Key, string(pair.Value)})
	}
	return made
}

func franzPoll(ctx context.Context, client *kgo.Client, count int) ([]record, error) {
	records := []record{}
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) { records = append(records, franzShown(one)) })
	}
	return records, nil
}

func franzRead(ctx context.Context, given reading) (any, error) {
	from := kgo.NewOffset().At(given.Start)
	level := kgo.ReadUncommitted()
	if given.Committed {
		level = kgo.ReadCommitted()
	}
	client, err := franzClient(
		given.Place, kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{given.Topic: {given.Partition: from}}),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return franzPoll(ctx, client, given.Count)
}

func franzMember(given grouping, more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.SessionTimeout(time.Minute),
	}
	if given.Instance != "" {
		options = append(options, kgo.InstanceID(given.Instance))
	}
	if given.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if given.IsPattern {
		options = append(options, kgo.ConsumeRegex())
	}
	return franzClient(given.Place, append(options, more...)...)
}

func franzConsume(ctx context.Context, given grouping) (any, error) {
	client, err := franzMember(given)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records, err := franzPoll(ctx, client, given.Count)
	if err != nil {
		return nil, err
	}
	return records, client.CommitUncommittedOffsets(ctx)
}

// franzShare has members join one after the other until each has partitions and none is left over.
func franzShare(ctx context.Context, given grouping) (any, error) {
	shares := newShares(given.Members)
	for index := range given.Members {
		member, err := franzMember(
			given,
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
				shares.add(index, added[given.Topic])
			}),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
				shares.remove(index, gone[given.Topic])
			}),
		)
		if err != nil {
			return nil, err
		}
		defer member.Close()
		if err := shares.await(ctx, index+1, given.Count); err != nil {
			return nil, err
		}
	}
	return shares.held(), nil
}

// --- transactions

func franzTransact(ctx context.Context, given transacting) (any, error) {
	client, err := franzClient(given.Place, kgo.TransactionalID(given.ID))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, one := range given.Steps {
		if err := franzStep(ctx, client, given, one); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func franzStep(ctx context.Context, client *kgo.Client, given transacting, one step) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for _, value := range one.Values {
		if err := client.ProduceSync(ctx, franzRecord(one.Topic, record{Value: &value})).FirstErr(); err != nil {
			return err
		}
	}
	if one.Group != "" {
		if err := franzSendOffset(ctx, client, given, one); err != nil {
			return err
		}
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(one.IsKept))
}

// franzSendOffset puts an offset into the transaction, as GroupTransactSession does for what it has polled.
func franzSendOffset(ctx context.Context, client *kgo.Client, given transacting, one step) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	added := kmsg.NewPtrAddOffsetsToTxnRequest()
	added.TransactionalID, added.ProducerID, added.ProducerEpoch, added.Group = given.ID, id, epoch, one.Group
	response, err := added.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return err
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.ProducerID, request.ProducerEpoch, request.Group = given.ID, id, epoch, one.Group
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = one.Offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = one.Topic, append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	committed, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}

// franzFence has a second producer of the same id begin before the first one commits.
func franzFence(ctx context.Context, given transacting) (any, error) {
	zombie, err := franzClient(given.Place, kgo.TransactionalID(given.ID))
	if err != nil {
		return nil, err
	}
	defer zombie.Close()
	if err := zombie.BeginTransaction(); err != nil {
		return nil, err
	}
	value := "zombie"
	if err := zombie.ProduceSync(ctx, franzRecord(given.Topic, record{Value: &value})).FirstErr(); err != nil {
		return nil, err
	}
	if _, err := franzTransact(ctx, given); err != nil {
		return nil, err
	}
	return franzCode(zombie.EndTransaction(ctx, kgo.TryCommit)), nil
}

// --- administration

// franzTask runs one administrative task.
func franzTask(given administering, work func(admin *kadm.Client) (any, error)) (any, error) {
	admin, err := franzAdmin(given.Place)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return work(admin)
}

func franzCreateTopic(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		configs := map[string]*string{}
		for name, value := range given.Configs {
			configs[name] = &value
		}
		_, err := admin.CreateTopic(ctx, given.Partitions, 1, configs, given.Topic)
		return nil, err
	})
}

func franzGrowTopic(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		responses, err := admin.UpdatePartitions(ctx, int(given.Partitions), given.Topic)
		if err != nil {
			return nil, err
		}
		return nil, responses[given.Topic].Err
	})
}

func franzDeleteTopic(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteTopic(ctx, given.Topic)
		return nil, err
	})
}

func franzTopics(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		details, err := admin.ListTopics(ctx)
		counts := map[string]int{}
		for name, detail := range details {
			counts[name] = len(detail.Partitions)
		}
		return counts, err
	})
}

func franzConfigs(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		described, err := admin.DescribeTopicConfigs(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		entries := map[string]string{}
		for _, one := range described[0].Configs {
			entries[one.Key] = one.MaybeValue()
		}
		return entries, described[0].Err
	})
}

func franzAlterConfigs(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		var changes []kadm.AlterConfig
		for name, value := range given.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
		}
		responses, err := admin.AlterTopicConfigs(ctx, changes, given.Topic)
		if err != nil {
			return nil, err
		}
		return nil, responses[0].Err
	})
}

func franzGroups(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		listed, err := admin.ListGroups(ctx)
		return listed.Groups(), err
	})
}

func franzDescribeGroup(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		described, err := admin.DescribeGroups(ctx, given.Group)
		if err != nil {
			return nil, err
		}
		group := described[given.Group]
		return map[string]any{"state": group.State, "members": len(group.Members)}, group.Err
	})
}

func franzGroupOffset(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		offsets, err := admin.FetchOffsets(ctx, given.Group)
		if err != nil {
			return nil, err
		}
		found, ok := offsets.Lookup(given.Topic, given.Partition)
		if !ok {
			return -1, nil
		}
		return found.At, found.Err
	})
}

func franzMoveGroup(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(given.Topic, given.Partition, given.Offset, -1)
		return nil, admin.CommitAllOffsets(ctx, given.Group, offsets)
	})
}

func franzDeleteGroup(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteGroup(ctx, given.Group)
		return nil, err
	})
}

func franzBounds(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		first, err := admin.ListStartOffsets(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		last, err := admin.ListEndOffsets(ctx, given.Topic)
		if err != nil {
			return nil, err
		}
		start, _ := first.Lookup(given.Topic, given.Partition)
		end, _ := last.Lookup(given.Topic, given.Partition)
		return []int64{start.Offset, end.Offset}, errors.Join(start.Err, end.Err)
	})
}

func franzOffsetAt(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		listed, err := admin.ListOffsetsAfterMilli(ctx, given.TimeMs, given.Topic)
		if err != nil {
			return nil, err
		}
		found, _ := listed.Lookup(given.Topic, given.Partition)
		return found.Offset, found.Err
	})
}

func franzDeleteRecords(ctx context.Context, given administering) (any, error) {
	return franzTask(given, func(admin *kadm.Client) (any, error) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(given.Topic, given.Partition, given.Offset, -1)
		responses, err := admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		return nil, responses.Error()
	})
}
