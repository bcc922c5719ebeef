/*
 * dag.c - the graph of dependencies as text to draw: Graphviz dot, or a Mermaid flowchart.
 *
 * Names of jobs are only ever labels, and escaped as such; what arrows lead to and from are numbers
 * in the order of the names. A dependency is drawn for those who may see both its jobs.
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "access.h"
#include "job_idem.h"
#include "lookup.h"
#include "spi.h"

JOB_IDEM_STATEMENT(find_dependencies,
				   "SELECT upstream_job_id, job_id, date_offset, offset_unit = 'open_day',"
				   "  on_skipped = 'block' FROM job_idem.dependency",
				   0, InvalidOid);

typedef struct Vertex
{
	int64 job_id;
	JobIdemJob *job;
	bool visible;
	bool wanted;
	int number; /* its place by name */
} Vertex;

typedef struct Edge
{
	int64 from_id;
	int64 to_id;
	Vertex *from;
	Vertex *to;
	int32 offset;
	bool open_days;
	bool blocks;
} Edge;

typedef struct Graph
{
	int n_vertices;
	Vertex *vertices; /* by job_id */
	Vertex **sorted;  /* by name */
	int n_edges;
	Edge *edges; /* by the names of both ends, and by offset */
} Graph;

static void
ReadEdges(Graph *graph)
{
	JobIdemArgs none = {.n = 0};
	int i;

	graph->n_edges = (int) JobIdemRun(&find_dependencies, &none, 0);
	graph->edges = palloc0(graph->n_edges * sizeof(Edge));
	for (i = 0; i < graph->n_edges; i++)
	{
		Edge *edge = &graph->edges[i];

		edge->from_id = JobIdemInt64(i, 1);
		edge->to_id = JobIdemInt64(i, 2);
		edge->offset = JobIdemInt32(i, 3);
		edge->open_days = JobIdemBool(i, 4);
		edge->blocks = JobIdemBool(i, 5);
	}
}

static int
CompareIds(const void *a, const void *b)
{
	int64 left = ((const Vertex *) a)->job_id;
	int64 right = ((const Vertex *) b)->job_id;

	return left < right ? -1 : left > right;
}

static int
CompareNames(const void *a, const void *b)
{
	return strcmp((*(Vertex *const *) a)->job->name, (*(Vertex *const *) b)->job->name);
}

static int
CompareEdges(const void *a, const void *b)
{
	const Edge *left = a;
	const Edge *right = b;

	if (left->from != right->from)
		return left->from->number - right->from->number;
	if (left->to != right->to)
		return left->to->number - right->to->number;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static Vertex *
FindVertex(const Graph *graph, int64 job_id)
{
	Vertex wanted = {.job_id = job_id};

	return bsearch(&wanted, graph->vertices, graph->n_vertices, sizeof(Vertex), CompareIds);
}

/* One vertex for each job at an end of a dependency, and for the one named, if any. */
static void
CollectVertices(Graph *graph, const JobIdemJob *named)
{
	int n = 0;
	int i;

	graph->vertices = palloc0((2 * graph->n_edges + 1) * sizeof(Vertex));
	for (i = 0; i < graph->n_edges; i++)
	{
		graph->vertices[n++].job_id = graph->edges[i].from_id;
		graph->vertices[n++].job_id = graph->edges[i].to_id;
	}
	if (named != NULL)
		graph->vertices[n++].job_id = named->job_id;
	qsort(graph->vertices, n, sizeof(Vertex), CompareIds);
	for (i = 0; i < n; i++)
		if (i == 0 || graph->vertices[i].job_id != graph->vertices[graph->n_vertices - 1].job_id)
			graph->vertices[graph->n_vertices++] = graph->vertices[i];
}

/* Looks the jobs up, asks for the caller's right to see them, and puts them in order. */
static void
ReadVertices(Graph *graph)
{
	int i;

	graph->sorted = palloc(graph->n_vertices * sizeof(Vertex *));
	for (i = 0; i < graph->n_vertices; i++)
	{
		Vertex *vertex = &graph->vertices[i];

		CHECK_FOR_INTERRUPTS();
		vertex->job = JobIdemJobById(vertex->job_id);
		vertex->visible = JobIdemHasRight(vertex->job_id, vertex->job->owner, RIGHT_VIEW);
		graph->sorted[i] = vertex;
	}
	qsort(graph->sorted, graph->n_vertices, sizeof(Vertex *), CompareNames);
	for (i = 0; i < graph->n_vertices; i++)
		graph->sorted[i]->number = i;
}

/* Ties dependencies to their ends, in order; leaves out those that the caller may not see. */
static void
LinkEdges(Graph *graph)
{
	int n = 0;
	int i;

	for (i = 0; i < graph->n_edges; i++)
	{
		Edge edge = graph->edges[i];

		edge.from = FindVertex(graph, edge.from_id);
		edge.to = FindVertex(graph, edge.to_id);
		if (edge.from->visible && edge.to->visible)
			graph->edges[n++] = edge;
	}
	graph->n_edges = n;
	qsort(graph->edges, n, sizeof(Edge), CompareEdges);
}

/* Both ends of every dependency are wanted, or what is connected with the job that was named. */
static void
MarkWanted(Graph *graph, const JobIdemJob *named)
{
	bool more = true;
	int i;

	if (named != NULL)
		FindVertex(graph, named->job_id)->wanted = true;
	while (more)
	{
		CHECK_FOR_INTERRUPTS();
		more = false;
		for (i = 0; i < graph->n_edges; i++)
		{
			Edge *edge = &graph->edges[i];

			if (edge->from->wanted && edge->to->wanted)
				continue;
			if (named != NULL && !edge->from->wanted && !edge->to->wanted)
				continue;
			edge->from->wanted = edge->to->wanted = more = true;
		}
	}
}

/* Leaves out what is not wanted, and numbers what is. */
static void
KeepWanted(Graph *graph)
{
	int n_vertices = 0;
	int n_edges = 0;
	int i;

	for (i = 0; i < graph->n_vertices; i++)
	{
		Vertex *vertex = graph->sorted[i];

		if (!vertex->wanted)
			continue;
		graph->sorted[n_vertices++] = vertex;
		vertex->number = n_vertices;
	}
	graph->n_vertices = n_vertices;
	for (i = 0; i < graph->n_edges; i++)
		if (graph->edges[i].to->wanted)
			graph->edges[n_edges++] = graph->edges[i];
	graph->n_edges = n_edges;
}

/* Graphviz reads backslashes and HTML entities in labels, also in quoted ones. */
static void
AppendDot(StringInfo out, const char *label)
{
	for (; *label != '\0'; label++)
	{
		unsigned char c = (unsigned char) *label;

		if (c == '"' || c == '\\')
			appendStringInfo(out, "\\%c", c);
		else if (c == '&')
			appendStringInfoString(out, "&amp;");
		else if (c == '\n')
			appendStringInfoString(out, "\\n");
		else
			appendStringInfoChar(out, c < ' ' || c == 0x7f ? ' ' : (char) c);
	}
}

static bool
IsWordByte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		IS_HIGHBIT_SET(c);
}

/*
 * Mermaid has many ways to misread a label: quotes, HTML, Markdown, directives. So whatever is not
 * within a word is written as a number.
 */
static void
AppendMermaid(StringInfo out, const char *label)
{
	const char *at;

	for (at = label; *at != '\0'; at++)
	{
		bool in_word = at > label && IsWordByte(at[-1]) && IsWordByte(at[1]);

		if (IsWordByte(*at) || *at == ' ' || (in_word && strchr("_-.", *at) != NULL))
			appendStringInfoChar(out, *at);
		else if (*at == '\n')
			appendStringInfoString(out, "<br/>");
		else if (*at < ' ' || *at == 0x7f)
			appendStringInfoChar(out, ' ');
		else
			appendStringInfo(out, "#%d;", *at);
	}
}

static char *
VertexLabel(const Vertex *vertex)
{
	return vertex->job->dropped ? psprintf("%s (dropped)", vertex->job->name) : vertex->job->name;
}

/* "2 open days earlier, not if skipped"; empty for the plain case. */
static char *
EdgeLabel(const Edge *edge)
{
	StringInfoData label;
	int n = abs(edge->offset);

	initStringInfo(&label);
	if (n > 0)
		appendStringInfo(&label, "%d %s%s %s", n, edge->open_days ? "open day" : "day",
						 n == 1 ? "" : "s", edge->offset < 0 ? "earlier" : "later");
	if (edge->blocks)
		appendStringInfo(&label, "%snot if skipped", n > 0 ? ", " : "");
	return label.data;
}

static void
DrawDot(StringInfo out, const Graph *graph)
{
	int i;

	appendStringInfoString(out, "digraph job_idem {\n\trankdir=LR;\n\tnode [shape=box];\n");
	for (i = 0; i < graph->n_vertices; i++)
	{
		appendStringInfo(out, "\tn%d [label=\"", graph->sorted[i]->number);
		AppendDot(out, VertexLabel(graph->sorted[i]));
		appendStringInfoString(out, "\"];\n");
	}
	for (i = 0; i < graph->n_edges; i++)
	{
		const Edge *edge = &graph->edges[i];
		const char *label = EdgeLabel(edge);

		appendStringInfo(out, "\tn%d -> n%d", edge->from->number, edge->to->number);
		if (label[0] != '\0')
			appendStringInfo(out, " [label=\"%s\"]", label);
		appendStringInfoString(out, ";\n");
	}
	appendStringInfoString(out, "}\n");
}

static void
DrawMermaid(StringInfo out, const Graph *graph)
{
	int i;

	appendStringInfoString(out, "flowchart LR\n");
	for (i = 0; i < graph->n_vertices; i++)
	{
		appendStringInfo(out, "\tn%d[\"", graph->sorted[i]->number);
		AppendMermaid(out, VertexLabel(graph->sorted[i]));
		appendStringInfoString(out, "\"]\n");
	}
	for (i = 0; i < graph->n_edges; i++)
	{
		const Edge *edge = &graph->edges[i];
		const char *label = EdgeLabel(edge);

		appendStringInfo(out, "\tn%d -->", edge->from->number);
		if (label[0] != '\0')
			appendStringInfo(out, "|\"%s\"|", label);
		appendStringInfo(out, " n%d\n", edge->to->number);
	}
}

static bool
IsDotArgument(FunctionCallInfo fcinfo, int i)
{
	char *format = JobIdemTextArgument(fcinfo, i, "format");

	if (strcmp(format, "dot") != 0 && strcmp(format, "mermaid") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown format \"%s\"", JobIdemShown(format)),
				 errhint("Formats are dot and mermaid.")));
	return strcmp(format, "dot") == 0;
}

PG_FUNCTION_INFO_V1(job_idem_dag);
Datum
job_idem_dag(PG_FUNCTION_ARGS)
{
	bool dot = IsDotArgument(fcinfo, 0);
	char *name = JobIdemTextArgumentOrNull(fcinfo, 1);
	JobIdemJob *named = NULL;
	Graph graph = {.n_vertices = 0};
	StringInfoData out;
	JobIdemScope scope;

	initStringInfo(&out);
	JobIdemEnter(&scope);
	if (name != NULL)
	{
		named = JobIdemJobByName(name);
		JobIdemRequire(named->job_id, named->owner, named->name, RIGHT_VIEW);
	}
	ReadEdges(&graph);
	CollectVertices(&graph, named);
	ReadVertices(&graph);
	LinkEdges(&graph);
	MarkWanted(&graph, named);
	KeepWanted(&graph);
	if (dot)
		DrawDot(&out, &graph);
	else
		DrawMermaid(&out, &graph);
	JobIdemLeave(&scope);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
