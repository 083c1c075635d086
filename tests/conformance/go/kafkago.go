// What tests have kafka-go do. It has neither transactions nor idempotent producers, and does not delete records.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
)

var kafkaGo = map[string]operation{
	"produce":       with(kafkaGoProduce),
	"read":          with(kafkaGoRead),
	"consume":       with(kafkaGoConsume),
	"share":         with(kafkaGoShare),
	"createTopic":   with(kafkaGoCreateTopic),
	"growTopic":     with(kafkaGoGrowTopic),
	"deleteTopic":   with(kafkaGoDeleteTopic),
	"topics":        with(kafkaGoTopics),
	"configs":       with(kafkaGoConfigs),
	"alterConfigs":  with(kafkaGoAlterConfigs),
	"groups":        with(kafkaGoGroups),
	"describeGroup": with(kafkaGoDescribeGroup),
	"groupOffset":   with(kafkaGoGroupOffset),
	"moveGroup":     with(kafkaGoMoveGroup),
	"deleteGroup":   with(kafkaGoDeleteGroup),
	"bounds":        with(kafkaGoBounds),
	"offsetAt":      with(kafkaGoOffsetAt),
}

func kafkaGoCode(err error) string {
	var code kafka.Error
	if errors.As(err, &code) {
		return number(int(code))
	}
	return ""
}

func (at kafkaPlace) login() plain.Mechanism {
	return plain.Mechanism{Username: at.User, Password: at.Password}
}

func kafkaGoDialer(at kafkaPlace) (*kafka.Dialer, error) {
	trusted, err := at.tls()
	return &kafka.Dialer{Timeout: time.Minute, SASLMechanism: at.login(), TLS: trusted}, err
}

func kafkaGoTransport(at kafkaPlace) (*kafka.Transport, error) {
	trusted, err := at.tls()
	return &kafka.Transport{SASL: at.login(), TLS: cloned(trusted)}, err
}

// cloned is a copy for a client that changes what it is given.
func cloned(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	return config.Clone()
}

// --- producing

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

// kafkaGoProduce writes everything to the partition of the first record: the writer's balancer chooses, not the message.
func kafkaGoProduce(ctx context.Context, given producing) (any, error) {
	transport, err := kafkaGoTransport(given.Place)
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	var offsets []int64
	partition := int(given.Records[0].Partition)
	writer := &kafka.Writer{
		Addr: kafka.TCP(given.Place.Broker), Topic: given.Topic, Transport: transport,
		Balancer:     kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition }),
		Compression:  kafkaGoCodecs[given.Codec],
		RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond, MaxAttempts: 3, BatchSize: 1000,
		// The node's limit shall judge, not the client's own.
		BatchBytes: 5_000_000,
		Completion: func(messages []kafka.Message, _ error) {
			for _, one := range messages {
				offsets = append(offsets, one.Offset)
			}
		},
	}
	if given.Acks != nil {
		writer.RequiredAcks = kafka.RequiredAcks(*given.Acks)
	}
	var messages []kafka.Message
	for _, one := range given.Records {
		messages = append(messages, kafkaGoMessage(one))
	}
	err = kafkaGoFirst(writer.WriteMessages(ctx, messages...))
	return offsets, errors.Join(err, writer.Close())
}

func kafkaGoMessage(one record) kafka.Message {
	made := kafka.Message{Key: bytesOf(one.Key), Value: bytesOf(one.Value)}
	if one.TimeMs != 0 {
		made.Time = time.UnixMilli(one.TimeMs)
	}
	for _, pair := range one.Headers {
		made.Headers = append(made.Headers, kafka.Header{Key: pair[0], Value: []byte(pair[1])})
	}
	return made
}

// kafkaGoFirst is the first error of many.
func kafkaGoFirst(err error) error {
	var all kafka.WriteErrors
	if errors.As(err, &all) {
		for _, one := range all {
			if one != nil {
				return one
			}
		}
	}
	return err
}

// --- consuming

func kafkaGoShown(one kafka.Message) record {
	made := record{
		Partition: int32(one.Partition), Offset: one.Offset, Key: textOf(one.Key), Value: textOf(one.Value),
		TimeMs: one.Time.UnixMilli(), Headers: []header{},
	}
	for _, pair := range one.Headers {
		made.Headers = append(made.Headers, header{pair.Key, string(pair.Value)})
	}
	return made
}

func kafkaGoFetch(ctx context.Context, reader *kafka.Reader, count int) ([]record, []kafka.Message, error) {
	records, messages := []record{}, []kafka.Message{}
	for len(records) < count {
		one, err := reader.FetchMessage(ctx)
		if err != nil {
			return nil, nil, err
		}
		records, messages = append(records, kafkaGoShown(one)), append(messages, one)
	}
	return records, messages, nil
}

func kafkaGoRead(ctx context.Context, given reading) (any, error) {
	dialer, err := kafkaGoDialer(given.Place)
	if err != nil {
		return nil, err
	}
	level := kafka.ReadUncommitted
	if given.Committed {
		level = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{given.Place.Broker}, Dialer: dialer, Topic: given.Topic, Partition: int(given.Partition),
		MaxWait: 200 * time.Millisecond, MaxBytes: 10 << 20, IsolationLevel: level, MaxAttempts: 3,
	})
	defer reader.Close()
	if err := reader.SetOffset(given.Start); err != nil {
		return nil, err
	}
	records, _, err := kafkaGoFetch(ctx, reader, given.Count)
	return records, err
}

func kafkaGoConsume(ctx context.Context, given grouping) (any, error) {
	dialer, err := kafkaGoDialer(given.Place)
	if err != nil {
		return nil, err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{given.Place.Broker}, Dialer: dialer, Topic: given.Topic, GroupID: given.Group,
		MaxWait: 200 * time.Millisecond, MaxBytes: 10 << 20, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, SessionTimeout: time.Minute,
	})
	defer reader.Close()
	records, messages, err := kafkaGoFetch(ctx, reader, given.Count)
	if err != nil {
		return nil, err
	}
	return records, reader.CommitMessages(ctx, messages...)
}

func kafkaGoShare(ctx context.Context, given grouping) (any, error) {
	shares := newShares(given.Members)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for index := range given.Members {
		dialer, err := kafkaGoDialer(given.Place)
		if err != nil {
			return nil, err
		}
		group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
			ID: given.Group, Brokers: []string{given.Place.Broker}, Dialer: dialer, Topics: []string{given.Topic},
			HeartbeatInterval: 200 * time.Millisecond, SessionTimeout: time.Minute,
		})
		if err != nil {
			return nil, err
		}
		defer group.Close()
		go kafkaGoJoin(ctx, group, given.Topic, func(partitions []int32) { shares.set(index, partitions) })
		if err := shares.await(ctx, index+1, given.Count); err != nil {
			return nil, err
		}
	}
	return shares.held(), nil
}

// kafkaGoJoin takes part in one generation of a group after the other.
func kafkaGoJoin(ctx context.Context, group *kafka.ConsumerGroup, topic string, onAssigned func([]int32)) {
	for ctx.Err() == nil {
		generation, err := group.Next(ctx)
		if err != nil {
			return
		}
		var mine []int32
		for _, one := range generation.Assignments[topic] {
			mine = append(mine, int32(one.ID))
		}
		onAssigned(mine)
		generation.Start(func(ctx context.Context) {
			<-ctx.Done()
			onAssigned(nil)
		})
	}
}

// --- administration

func kafkaGoTask(given administering, work func(client *kafka.Client) (any, error)) (any, error) {
	transport, err := kafkaGoTransport(given.Place)
	if err != nil {
		return nil, err
	}
	defer transport.CloseIdleConnections()
	return work(&kafka.Client{Addr: kafka.TCP(given.Place.Broker), Transport: transport, Timeout: time.Minute})
}

func kafkaGoCreateTopic(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		topic := kafka.TopicConfig{Topic: given.Topic, NumPartitions: int(given.Partitions), ReplicationFactor: 1}
		for name, value := range given.Configs {
			topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
		}
		response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err != nil {
			return nil, err
		}
		return nil, response.Errors[given.Topic]
	})
}

func kafkaGoGrowTopic(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		topic := kafka.TopicPartitionsConfig{Name: given.Topic, Count: given.Partitions}
		request := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{topic}}
		response, err := client.CreatePartitions(ctx, request)
		if err != nil {
			return nil, err
		}
		return nil, response.Errors[given.Topic]
	})
}

func kafkaGoDeleteTopic(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		response, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{given.Topic}})
		if err != nil {
			return nil, err
		}
		return nil, response.Errors[given.Topic]
	})
}

func kafkaGoTopics(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		response, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		counts := map[string]int{}
		for _, one := range response.Topics {
			counts[one.Name] = len(one.Partitions)
		}
		return counts, nil
	})
}

func kafkaGoConfigs(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		topic := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: given.Topic}
		request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{topic}}
		response, err := client.DescribeConfigs(ctx, request)
		if err != nil {
			return nil, err
		}
		entries := map[string]string{}
		for _, one := range response.Resources[0].ConfigEntries {
			entries[one.ConfigName] = one.ConfigValue
		}
		return entries, response.Resources[0].Error
	})
}

func kafkaGoAlterConfigs(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		topic := kafka.IncrementalAlterConfigsRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: given.Topic,
		}
		for name, value := range given.Configs {
			topic.Configs = append(topic.Configs, kafka.IncrementalAlterConfigsRequestConfig{Name: name, Value: value})
		}
		resources := []kafka.IncrementalAlterConfigsRequestResource{topic}
		response, err := client.IncrementalAlterConfigs(
			ctx, &kafka.IncrementalAlterConfigsRequest{Resources: resources},
		)
		if err != nil {
			return nil, err
		}
		return nil, response.Resources[0].Error
	})
}

func kafkaGoGroups(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		response, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, one := range response.Groups {
			names = append(names, one.GroupID)
		}
		return names, response.Error
	})
}

func kafkaGoDescribeGroup(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		response, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{given.Group}})
		if err != nil {
			return nil, err
		}
		group := response.Groups[0]
		return map[string]any{"state": group.GroupState, "members": len(group.Members)}, group.Error
	})
}

func kafkaGoGroupOffset(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		wanted := map[string][]int{given.Topic: {int(given.Partition)}}
		response, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: given.Group, Topics: wanted})
		if err != nil {
			return nil, err
		}
		found := response.Topics[given.Topic][0]
		return found.CommittedOffset, errors.Join(response.Error, found.Error)
	})
}

func kafkaGoMoveGroup(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		wanted := map[string][]kafka.OffsetCommit{given.Topic: {{Partition: int(given.Partition), Offset: given.Offset}}}
		request := &kafka.OffsetCommitRequest{GroupID: given.Group, GenerationID: -1, Topics: wanted}
		response, err := client.OffsetCommit(ctx, request)
		if err != nil {
			return nil, err
		}
		return nil, response.Topics[given.Topic][0].Error
	})
}

func kafkaGoDeleteGroup(ctx context.Context, given administering) (any, error) {
	return kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		response, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{given.Group}})
		if err != nil {
			return nil, err
		}
		return nil, response.Errors[given.Group]
	})
}

func kafkaGoOffsets(ctx context.Context, given administering, times ...int64) (kafka.PartitionOffsets, error) {
	var wanted []kafka.OffsetRequest
	for _, one := range times {
		wanted = append(wanted, kafka.OffsetRequest{Partition: int(given.Partition), Timestamp: one})
	}
	found, err := kafkaGoTask(given, func(client *kafka.Client) (any, error) {
		topics := map[string][]kafka.OffsetRequest{given.Topic: wanted}
		response, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: topics})
		if err != nil {
			return nil, err
		}
		offsets := response.Topics[given.Topic][0]
		return offsets, offsets.Error
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	return found.(kafka.PartitionOffsets), nil
}

func kafkaGoBounds(ctx context.Context, given administering) (any, error) {
	offsets, err := kafkaGoOffsets(ctx, given, kafka.FirstOffset, kafka.LastOffset)
	return []int64{offsets.FirstOffset, offsets.LastOffset}, err
}

func kafkaGoOffsetAt(ctx context.Context, given administering) (any, error) {
	offsets, err := kafkaGoOffsets(ctx, given, given.TimeMs)
	for offset := range offsets.Offsets {
		return offset, err
	}
	return -1, err
}
