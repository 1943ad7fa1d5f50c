/* A tuner plugin for stock NCCL (2.24 and later, interfaces 4 to 6) and RCCL that follows a table of choices.
 *
 *     make nccl-tuner
 *     NCCL_TUNER_PLUGIN=$PWD/build/libnccl-tuner-syntony.so NCCL_TUNER_CONFIG_FILE=choices.csv ...
 *
 * A line of the table (`syntony export nccl-tuner` writes it; NVIDIA's example plugin reads the same):
 *
 *     collective,least bytes,most bytes,algorithm,protocol,channels,nodes,ranks,operations,registered
 *     allreduce,65537,1048576,tree,ll128,-1,2,16,-1,-1                        -1: any, and for channels NCCL's own number
 *
 * The first line that fits decides. What a line says and NCCL cannot do here (its cost is negative) is passed over. A
 * malformed line is refused with its number when a communicator forms: then NCCL goes on without the plugin. */
#include "tuner_abi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "Syntony"
#define LONGEST_LINE 256
#define FIELDS 10
#define FEWEST_FIELDS 8

typedef struct {
  int collective, algorithm, protocol, channels, nodes, ranks, operations, registered;
  unsigned long long least, most;
} choice;

typedef struct {
  choice* choices;
  size_t count;
  size_t ranks, nodes;
  nccl_log log;
} tuner;

static const char* const collectives[] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
static const char* const algorithms[] = {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
static const char* const protocols[] = {"ll", "ll128", "simple"};

#define LENGTH(array) ((int)(sizeof(array) / sizeof((array)[0])))

static int index_of(const char* word, const char* const* words, int count) {
  for (int i = 0; i < count; i++)
    if (strcmp(word, words[i]) == 0) return i;
  return -1;
}

/* A decimal number from -1 (any) on; 0 if it is none. */
static int number_of(const char* word, int* number) {
  char* end = NULL;
  errno = 0;
  const long value = strtol(word, &end, 10);
  if (errno != 0 || end == word || *end != '\0' || value < -1 || value > 1 << 24) return 0;
  *number = (int)value;
  return 1;
}

static int bytes_of(const char* word, unsigned long long* bytes) {
  char* end = NULL;
  errno = 0;
  *bytes = strtoull(word, &end, 10);
  return errno == 0 && end != word && *end == '\0' && word[0] != '-';
}

/* What is wrong with a line, or NULL; `line` is cut into its fields. */
static const char* parse_line(char* line, choice* parsed) {
  char* fields[FIELDS];
  int count = 0;
  for (char* field = line; field != NULL; count++) {
    if (count == FIELDS) return "it has more than 10 fields";
    char* comma = strchr(field, ',');
    if (comma != NULL) *comma = '\0';
    while (*field == ' ' || *field == '\t') field++;
    for (size_t end = strlen(field); end > 0 && (field[end - 1] == ' ' || field[end - 1] == '\t'); end--)
      field[end - 1] = '\0';
    fields[count] = field;
    field = comma == NULL ? NULL : comma + 1;
  }
  if (count < FEWEST_FIELDS) return "it has fewer than 8 fields";
  parsed->collective = index_of(fields[0], collectives, LENGTH(collectives));
  parsed->algorithm = index_of(fields[3], algorithms, LENGTH(algorithms));
  parsed->protocol = index_of(fields[4], protocols, LENGTH(protocols));
  if (parsed->collective < 0) return "its collective is not known";
  if (parsed->algorithm < 0) return "its algorithm is not known";
  if (parsed->protocol < 0) return "its protocol is not known";
  if (!bytes_of(fields[1], &parsed->least) || !bytes_of(fields[2], &parsed->most)) return "its bytes are no numbers";
  if (parsed->least > parsed->most) return "its range of bytes is empty";
  parsed->operations = parsed->registered = -1;
  if (!number_of(fields[5], &parsed->channels) || !number_of(fields[6], &parsed->nodes) ||
      !number_of(fields[7], &parsed->ranks) || (count > 8 && !number_of(fields[8], &parsed->operations)) ||
      (count > 9 && !number_of(fields[9], &parsed->registered)))
    return "a field is no number from -1 on";
  return NULL;
}

static void tell(const tuner* self, int level, int line, const char* format, const char* path, size_t number,
                 const char* what) {
  if (self->log != NULL) self->log(level, NCCL_SUBSYSTEM_TUNING, __FILE__, line, format, path, number, what);
}

static nccl_result read_table(tuner* self, const char* path) {
  FILE* file = fopen(path, "r");
  if (file == NULL) {
    tell(self, NCCL_LEVEL_WARN, __LINE__, "TUNER/" NAME ": %s:%zu: %s", path, 0, "cannot be read");
    return SYNTONY_NCCL_SYSTEM_ERROR;
  }
  char line[LONGEST_LINE];
  const char* wrong = NULL;
  size_t number = 0, room = 0;
  while (wrong == NULL && fgets(line, sizeof line, file) != NULL) {
    number++;
    if (strchr(line, '\n') == NULL && !feof(file)) {
      wrong = "it is longer than 254 characters";
      break;
    }
    line[strcspn(line, "\r\n")] = '\0';
    if (line[strspn(line, " \t")] == '\0' || line[0] == '#') continue;
    if (self->count == room) {
      room = room == 0 ? 64 : 2 * room;
      choice* more = realloc(self->choices, room * sizeof *more);
      if (more == NULL) {
        wrong = "there is no memory for it";
        break;
      }
      self->choices = more;
    }
    wrong = parse_line(line, &self->choices[self->count]);
    if (wrong == NULL) self->count++;
  }
  fclose(file);
  if (wrong != NULL) {
    tell(self, NCCL_LEVEL_WARN, __LINE__, "TUNER/" NAME ": %s:%zu: the line is refused: %s", path, number, wrong);
    return SYNTONY_NCCL_SYSTEM_ERROR;
  }
  tell(self, NCCL_LEVEL_INFO, __LINE__, "TUNER/" NAME ": %s: %zu choices%s", path, self->count, "");
  return SYNTONY_NCCL_SUCCESS;
}

static nccl_result finalize(void* context) {
  tuner* self = context;
  if (self != NULL) free(self->choices);
  free(self);
  return SYNTONY_NCCL_SUCCESS;
}

static nccl_result init(void** context, size_t ranks, size_t nodes, nccl_log log) {
  tuner* self = calloc(1, sizeof *self);
  if (self == NULL) return SYNTONY_NCCL_SYSTEM_ERROR;
  self->ranks = ranks;
  self->nodes = nodes;
  self->log = log;
  const char* path = getenv("NCCL_TUNER_CONFIG_FILE");
  const nccl_result read = read_table(self, path != NULL ? path : "nccl_tuner.conf");
  if (read != SYNTONY_NCCL_SUCCESS) {
    finalize(self);
    return read;
  }
  *context = self;
  return SYNTONY_NCCL_SUCCESS;
}

static nccl_result init_v4(size_t ranks, size_t nodes, nccl_log log, void** context) {
  return init(context, ranks, nodes, log);
}

static nccl_result init_v5(void** context, uint64_t communicator, size_t ranks, size_t nodes, nccl_log log,
                           void* domains, void* constants) {
  (void)communicator, (void)domains, (void)constants;
  return init(context, ranks, nodes, log);
}

static int fits(int wanted, size_t found) { return wanted == -1 || (size_t)wanted == found; }

static nccl_result get_coll_info(void* context, int collective, size_t bytes, int operations, float** costs,
                                 int algorithm_count, int protocol_count, int registered, int* channels) {
  const tuner* self = context;
  if (self == NULL) return SYNTONY_NCCL_INTERNAL_ERROR;
  /* The interface says float**, and means rows of `protocol_count` one after another. */
  float* table = (float*)costs;
  for (size_t i = 0; i < self->count; i++) {
    const choice* one = &self->choices[i];
    if (one->collective != collective || bytes < one->least || bytes > one->most) continue;
    if (!fits(one->nodes, self->nodes) || !fits(one->ranks, self->ranks)) continue;
    if ((one->operations != -1 && one->operations != operations) ||
        (one->registered != -1 && one->registered != registered))
      continue;
    if (one->algorithm >= algorithm_count || one->protocol >= protocol_count) continue;
    float* cost = table + one->algorithm * protocol_count + one->protocol;
    if (*cost < 0) continue;
    *cost = 0;
    if (one->channels != -1) *channels = one->channels;
    break;
  }
  return SYNTONY_NCCL_SUCCESS;
}

static nccl_result get_chunk_size(void* context, int collective, size_t bytes, int algorithm, int protocol,
                                  int channels, size_t* chunk) {
  (void)context, (void)collective, (void)bytes, (void)algorithm, (void)protocol, (void)channels, (void)chunk;
  return SYNTONY_NCCL_SUCCESS;
}

__attribute__((visibility("default"))) const nccl_tuner_v4 ncclTunerPlugin_v4 = {NAME, init_v4, get_coll_info, finalize};
__attribute__((visibility("default"))) const nccl_tuner_v5 ncclTunerPlugin_v5 = {NAME, init_v5, get_coll_info, finalize};
__attribute__((visibility("default"))) const nccl_tuner_v6 ncclTunerPlugin_v6 = {NAME, init_v5, get_coll_info, finalize,
                                                                                 get_chunk_size};
