// What tests have sarama do.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramas = map[string]operation{
	"produce":       with(saramaProduce),
	"read":          with(saramaRead),
	"consume":       with(saramaConsume),
	"share":         with(saramaShare),
	"transact":      with(saramaTransact),
	"fence":         with(saramaFence),
	"createTopic":   with(saramaCreateTopic),
	"growTopic":     with(saramaGrowTopic),
	"deleteTopic":   with(saramaDeleteTopic),
	"topics":        with(saramaTopics),
	"configs":       with(saramaConfigs),
	"alterConfigs":  with(saramaAlterConfigs),
	"groups":        with(saramaGroups),
	"describeGroup": with(saramaDescribeGroup),
	"groupOffset":   with(saramaGroupOffset),
	"moveGroup":     with(saramaMoveGroup),
	"deleteGroup":   with(saramaDeleteGroup),
	"bounds":        with(saramaBounds),
	"offsetAt":      with(saramaOffsetAt),
	"deleteRecords": with(saramaDeleteRecords),
}

func saramaCode(err error) string {
	var code sarama.KError
	if errors.As(err, &code) {
		return number(int16(code))
	}
	if topic := new(sarama.TopicError); errors.As(err, &topic) {
		return number(int16(topic.Err))
	}
	return ""
}

func saramaConfig(at kafkaPlace) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	config.Net.SASL.User, config.Net.SASL.Password = at.User, at.Password
	config.Producer.Return.Successes = true
	// The node's limit shall judge, not the client's own.
	config.Producer.MaxMessageBytes = 5_000_000
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = time.Minute
	trusted, err := at.tls()
	config.Net.TLS.Enable, config.Net.TLS.Config = trusted != nil, trusted
	return config, err
}

// --- producing

var saramaCodecs = map[string]sarama.CompressionCodec{
	"":       sarama.CompressionNone,
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func saramaMessage(topic string, one record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: topic, Partition: one.Partition}
	if one.Key != nil {
		made.Key = sarama.StringEncoder(*one.Key)
	}
	if one.Value != nil {
		made.Value = sarama.StringEncoder(*one.Value)
	}
	if one.TimeMs != 0 {
		made.Timestamp = time.UnixMilli(one.TimeMs)
	}
	for _, pair := range one.Headers {
		made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(pair[0]), Value: []byte(pair[1])})
	}
	return made
}

func saramaProduce(_ context.Context, given producing) (any, error) {
	config, err := saramaConfig(given.Place)
	if err != nil {
		return nil, err
	}
	config.Producer.Compression = saramaCodecs[given.Codec]
	config.Producer.RequiredAcks = sarama.WaitForAll
	if given.Acks != nil {
		config.Producer.RequiredAcks = sarama.RequiredAcks(*given.Acks)
	}
	if given.Idempotent {
		config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	}
	producer, err := sarama.NewSyncProducer([]string{given.Place.Broker}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, one := range given.Records {
		messages = append(messages, saramaMessage(given.Topic, one))
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, saramaFirst(err)
	}
	offsets := []int64{}
	for _, one := range messages {
		offsets = append(offsets, one.Offset)
	}
	return offsets, nil
}

// saramaFirst is the first error of many.
func saramaFirst(err error) error {
	var all sarama.ProducerErrors
	if errors.As(err, &all) && len(all) > 0 {
		return all[0].Err
	}
	return err
}

// --- consuming

func saramaShown(one *sarama.ConsumerMessage) record {
	made := record{
		Partition: one.Partition, Offset: one.Offset, Key: textOf(one.Key), Value: textOf(one.Value),
		TimeMs: one.Timestamp.UnixMilli(), Headers: []header{},
	}
	for _, pair := range one.Headers {
		made.Headers = append(made.Headers, header{string(pair.Key), string(pair.Value)})
	}
	return made
}

func saramaRead(ctx context.Context, given reading) (any, error) {
	config, err := saramaConfig(given.Place)
	if err != nil {
		return nil, err
	}
	if given.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{given.Place.Broker}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(given.Topic, given.Partition, given.Start)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	records := []record{}
	for len(records) < given.Count {
		select {
		case one := <-partition.Messages():
			records = append(records, saramaShown(one))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return records, nil
}

// saramaMember takes what a group gives it: so many messages, or nothing but its partitions.
type saramaMember struct {
	onSetup func(partitions []int32)
	mutex   sync.Mutex
	records []record
	count   int
	done    context.CancelFunc
	topic   string
}

func (member *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	if member.onSetup != nil {
		member.onSetup(session.Claims()[member.topic])
	}
	return nil
}

func (member *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	if member.onSetup != nil {
		member.onSetup(nil)
	}
	return nil
}

func (member *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case one, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			member.take(session, one)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (member *saramaMember) take(session sarama.ConsumerGroupSession, one *sarama.ConsumerMessage) {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	if len(member.records) >= member.count {
		return
	}
	member.records = append(member.records, saramaShown(one))
	session.MarkMessage(one, "")
	if len(member.records) == member.count {
		session.Commit()
		member.done()
	}
}

func saramaGroup(given grouping) (sarama.ConsumerGroup, error) {
	config, err := saramaConfig(given.Place)
	if err != nil {
		return nil, err
	}
	config.Consumer.Group.InstanceId = given.Instance
	return sarama.NewConsumerGroup([]string{given.Place.Broker}, given.Group, config)
}

func saramaConsume(ctx context.Context, given grouping) (any, error) {
	group, err := saramaGroup(given)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, done := context.WithCancel(ctx)
	defer done()
	member := &saramaMember{count: given.Count, done: done, records: []record{}, topic: given.Topic}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{given.Topic}, member); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	if len(member.records) < given.Count {
		return nil, context.DeadlineExceeded
	}
	return member.records, nil
}

func saramaShare(ctx context.Context, given grouping) (any, error) {
	shares := newShares(given.Members)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for index := range given.Members {
		group, err := saramaGroup(given)
		if err != nil {
			return nil, err
		}
		defer group.Close()
		member := &saramaMember{topic: given.Topic, onSetup: func(partitions []int32) { shares.set(index, partitions) }}
		go func() {
			for ctx.Err() == nil && group.Consume(ctx, []string{given.Topic}, member) == nil {
			}
		}()
		if err := shares.await(ctx, index+1, given.Count); err != nil {
			return nil, err
		}
	}
	return shares.held(), nil
}

// --- transactions

func saramaTransactional(given transacting) (sarama.SyncProducer, error) {
	config, err := saramaConfig(given.Place)
	if err != nil {
		return nil, err
	}
	config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = given.ID
	return sarama.NewSyncProducer([]string{given.Place.Broker}, config)
}

func saramaTransact(_ context.Context, given transacting) (any, error) {
	producer, err := saramaTransactional(given)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, one := range given.Steps {
		if err := saramaStep(producer, one); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func saramaStep(producer sarama.SyncProducer, one step) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for _, value := range one.Values {
		if _, _, err := producer.SendMessage(saramaMessage(one.Topic, record{Value: &value})); err != nil {
			return err
		}
	}
	if one.Group != "" {
		offset := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: one.Offset}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{one.Topic: {offset}}
		if err := producer.AddOffsetsToTxn(offsets, one.Group); err != nil {
			return err
		}
	}
	if one.IsKept {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func saramaFence(ctx context.Context, given transacting) (any, error) {
	zombie, err := saramaTransactional(given)
	if err != nil {
		return nil, err
	}
	defer zombie.Close()
	if err := zombie.BeginTxn(); err != nil {
		return nil, err
	}
	value := "zombie"
	if _, _, err := zombie.SendMessage(saramaMessage(given.Topic, record{Value: &value})); err != nil {
		return nil, err
	}
	if _, err := saramaTransact(ctx, given); err != nil {
		return nil, err
	}
	return saramaCode(zombie.CommitTxn()), nil
}

// --- administration

func saramaTask(given administering, work func(admin sarama.ClusterAdmin) (any, error)) (any, error) {
	config, err := saramaConfig(given.Place)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin([]string{given.Place.Broker}, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return work(admin)
}

func texts(configs map[string]string) map[string]*string {
	entries := map[string]*string{}
	for name, value := range configs {
		entries[name] = &value
	}
	return entries
}

func saramaCreateTopic(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		detail := &sarama.TopicDetail{
			NumPartitions: given.Partitions, ReplicationFactor: 1, ConfigEntries: texts(given.Configs),
		}
		return nil, admin.CreateTopic(given.Topic, detail, false)
	})
}

func saramaGrowTopic(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.CreatePartitions(given.Topic, given.Partitions, nil, false)
	})
}

func saramaDeleteTopic(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.DeleteTopic(given.Topic)
	})
}

func saramaTopics(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		details, err := admin.ListTopics()
		counts := map[string]int32{}
		for name, detail := range details {
			counts[name] = detail.NumPartitions
		}
		return counts, err
	})
}

func saramaConfigs(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		described, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: given.Topic})
		entries := map[string]string{}
		for _, one := range described {
			entries[one.Name] = one.Value
		}
		return entries, err
	})
}

func saramaAlterConfigs(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.AlterConfig(sarama.TopicResource, given.Topic, texts(given.Configs), false)
	})
}

func saramaGroups(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		listed, err := admin.ListConsumerGroups()
		names := []string{}
		for name := range listed {
			names = append(names, name)
		}
		return names, err
	})
}

func saramaDescribeGroup(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		described, err := admin.DescribeConsumerGroups([]string{given.Group})
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": described[0].State, "members": len(described[0].Members)}, nil
	})
}

func saramaGroupOffset(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		wanted := map[string][]int32{given.Topic: {given.Partition}}
		offsets, err := admin.ListConsumerGroupOffsets(given.Group, wanted)
		if err != nil {
			return nil, err
		}
		return offsets.GetBlock(given.Topic, given.Partition).Offset, nil
	})
}

func saramaMoveGroup(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		places := map[int32]sarama.OffsetAndMetadata{given.Partition: {Offset: given.Offset}}
		wanted := map[string]map[int32]sarama.OffsetAndMetadata{given.Topic: places}
		_, err := admin.AlterConsumerGroupOffsets(given.Group, wanted, nil)
		return nil, err
	})
}

func saramaDeleteGroup(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.DeleteConsumerGroup(given.Group)
	})
}

func saramaOffset(given administering, time int64) (int64, error) {
	config, err := saramaConfig(given.Place)
	if err != nil {
		return 0, err
	}
	client, err := sarama.NewClient([]string{given.Place.Broker}, config)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return client.GetOffset(given.Topic, given.Partition, time)
}

func saramaBounds(_ context.Context, given administering) (any, error) {
	first, err := saramaOffset(given, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	last, err := saramaOffset(given, sarama.OffsetNewest)
	return []int64{first, last}, err
}

func saramaOffsetAt(_ context.Context, given administering) (any, error) {
	return saramaOffset(given, given.TimeMs)
}

func saramaDeleteRecords(_ context.Context, given administering) (any, error) {
	return saramaTask(given, func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.DeleteRecords(given.Topic, map[int32]int64{given.Partition: given.Offset})
	})
}
